// The table of screens, in the order in which they are shown. One without a title is reached by links.
import type { ComponentType } from 'preact';
import { Catalogue } from './screens/catalogue';
import { Cursors } from './screens/cursors';
import { EventScreen } from './screens/event';
import { Letters } from './screens/letters';
import { Live } from './screens/live';
import { Members } from './screens/members';
import { Overview } from './screens/overview';
import { Plots } from './screens/plots';
import { Run } from './screens/run';
import { Settings } from './screens/settings';
import { Story } from './screens/story';
import { Wiring } from './screens/wiring';
import { Work } from './screens/work';

export const screens: { name: string; title?: string; show: ComponentType }[] = [
  { name: 'overview', title: 'Overview', show: Overview },
  { name: 'live', title: 'Live', show: Live },
  { name: 'event', show: EventScreen },
  { name: 'run', title: 'Run', show: Run },
  { name: 'cursors', title: 'Cursors', show: Cursors },
  { name: 'letters', title: 'Dead letters', show: Letters },
  { name: 'story', title: 'Story', show: Story },
  { name: 'wiring', title: 'Wiring', show: Wiring },
  { name: 'catalogue', title: 'Catalogue', show: Catalogue },
  { name: 'plots', title: 'Plots', show: Plots },
  { name: 'members', title: 'Members', show: Members },
  { name: 'settings', title: 'Settings', show: Settings },
  { name: 'work', title: 'Roles and work', show: Work },
];
