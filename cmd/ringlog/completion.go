package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// bashCompletion and zshCompletion ask the program itself what could follow, with the flag
// that urfave/cli answers.
const bashCompletion = `_ringlog() {
  local cur="${COMP_WORDS[COMP_CWORD]}" words
  if [[ "$cur" == -* ]]; then
    words=$("${COMP_WORDS[@]:0:$COMP_CWORD}" "$cur" --generate-bash-completion 2>/dev/null)
  else
    words=$("${COMP_WORDS[@]:0:$COMP_CWORD}" --generate-bash-completion 2>/dev/null)
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o bashdefault -o default -F _ringlog ringlog
`

const zshCompletion = `#compdef ringlog
_ringlog() {
  local -a opts
  local cur="${words[-1]}"
  if [[ "$cur" == -* ]]; then
    opts=("${(@f)$(${words[@]:0:#words[@]-1} ${cur} --generate-bash-completion 2>/dev/null)}")
  else
    opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  fi
  if [[ -n "${opts[1]}" ]]; then
    _describe 'values' opts
  else
    _files
  fi
}
compdef _ringlog ringlog
`

func completionCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell's completion script", ArgsUsage: "bash|zsh|fish",
		Description: "bash:  source <(ringlog completion bash)\nzsh:   source <(ringlog completion zsh)\nfish:  " +
			"ringlog completion fish | source",
		Action: shell.Args(1, "bash, zsh or fish", func(c *cli.Context) error {
			script, err := completionScript(c.App, c.Args().First())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(sh.Out, script)
			return err
		}),
	}
}

// completionScript is the script for a shell.
func completionScript(app *cli.App, name string) (string, error) {
	switch name {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	default:
		return "", shell.Usagef("there is no completion for %q: use bash, zsh or fish", name)
	}
}
