import { bytes, count, duration, rateText } from '../format';
import { samples, status } from '../state';
import type { Setting } from '../types';
import { Facts, Panel, Screen, Stat, useLoad, View } from '../ui';
import { Plot } from '../plot';

export function Plots() {
  const { at, series } = samples.value;
  const of = (name: string) => series[name] ?? [];
  const settings = useLoad<{ settings: Setting[] }>('/v1/settings');
  const s = status.value;
  return (
    <Screen title="Plots" about={`What ${s?.node_id ?? 'this node'} does, since this page was opened, for half an hour; what this page asks for itself is left out. Use Grafana for longer periods.`} command="ringlog status">
      <div class="columns">
        <Panel title="Throughput">
          <Plot
            label="Events published and read in a second"
            unit="/s"
            at={at}
            format={rateText}
            lines={[
              { name: 'published in the cluster', values: of('publish') },
              { name: 'read here', values: of('read'), dash: [6, 4] },
              { name: 'duplicates', values: of('duplicates'), dash: [2, 3] },
            ]}
          />
        </Panel>
        <Panel title="Time to acknowledge a publish here">
          <Plot label="Mean time of a publish at this node" unit="ms" at={at} lines={[{ name: 'mean', values: of('publish_ms') }]} format={(n) => n.toPrecision(3)} />
        </Panel>
        <Panel title="Requests here">
          <Plot
            label="Requests in a second"
            unit="/s"
            at={at}
            format={rateText}
            lines={[{ name: 'requests', values: of('requests') }]}
          />
        </Panel>
        <Panel title="Streams and queue">
          <Plot
            label="Open streams here, and requests queued at the leader"
            at={at}
            format={rateText}
            lines={[
              { name: 'streams here', values: of('streams'), dash: [6, 4] },
              { name: 'queued at the leader', values: of('queue'), dash: [2, 3] },
            ]}
          />
        </Panel>
        <Panel title="Largest lag">
          <Plot label="Largest lag of a cursor" unit="events" at={at} format={rateText} lines={[{ name: 'lag', values: of('lag') }]} />
        </Panel>
        <Panel title="Dead letters">
          <Plot label="Dead letters that wait" unit="letters" at={at} format={rateText} lines={[{ name: 'waiting', values: of('letters') }]} />
        </Panel>
        <Panel title="Oldest unread event">
          <Plot label="Age of the oldest event that a cursor has not read" at={at} format={duration} lines={[{ name: 'age', values: of('lag_seconds') }]} />
        </Panel>
        <Panel title="Log">
          <Plot label="Size of the log" at={at} format={bytes} lines={[{ name: 'log', values: of('log_bytes') }]} />
        </Panel>
        <Panel title="Disk free here">
          <Plot label="Free space on the disk of the node" at={at} format={bytes} lines={[{ name: 'free', values: of('disk_free') }]} />
        </Panel>
        <Panel title="Memory here">
          <Plot label="Memory of the node" at={at} format={bytes} lines={[{ name: 'memory', values: of('memory') }]} />
        </Panel>
      </div>
      {s && (
        <div class="columns">
          <Panel title="What the log keeps">
            <div class="stats">
              <Stat name="Events" value={count(s.last_offset - s.first_offset + 1)} note={`${count(s.first_offset)} to ${count(s.last_offset)}`} />
              <Stat name="Size" value={bytes(s.log.log_bytes)} />
              <Stat name="Suppressed" value={count(s.log.suppressed)} note="duplicates" />
              <Stat name="Refused" value={count(s.log.refused)} />
            </div>
          </Panel>
          <Panel title="Retention and snapshots">
            <View of={settings}>
              {(all) => <Facts of={all.settings.filter((x) => /^(retention|snapshot|dedup\.window|compact)/.test(x.key)).map((x): [string, string] => [x.key, x.value || '–'])} />}
            </View>
            <p class="note">This node has applied index {count(s.applied_index)}, and has been up for {duration(s.uptime_seconds)}.</p>
          </Panel>
        </div>
      )}
    </Screen>
  );
}
