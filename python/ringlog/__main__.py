"""The command line: python -m ringlog."""

import sys

from ringlog._cli import main

sys.exit(main())
