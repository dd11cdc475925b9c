// Plot draws series over time. The same values are in a table below it, and lines differ in their dashes, too.
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { stamp } from './format';
import { clock, theme } from './state';

export interface Line {
  name: string;
  values: number[];
  dash?: number[];
}

const colors = ['--accent', '--warn', '--ink', '--bad'];

// The library is loaded with the first plot.
const library = () => import('./uplot');

export function Plot({ label, at, lines, unit, format }: { label: string; at: number[]; lines: Line[]; unit?: string; format?: (n: number) => string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const [width, setWidth] = useState(0);
  const show = format ?? ((n: number) => (Number.isInteger(n) ? n.toLocaleString('en') : n.toPrecision(3)));
  const names = lines.map((l) => l.name).join('\n');
  const some = at.length > 1;

  useEffect(() => {
    const watch = new ResizeObserver(([e]) => setWidth(Math.floor(e!.contentRect.width)));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    if (!some || !width) return;
    let gone = false;
    void library().then(({ default: UPlot }) => {
      if (gone) return;
      const style = getComputedStyle(document.documentElement);
      // Canvas does not know light-dark(): an element resolves it.
      const probe = document.createElement('span');
      box.current!.append(probe);
      const color = (name: string) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
      };
      const soft = color('--soft');
      const grid = { stroke: color('--line'), width: 1 };
      const font = `12px ${style.fontFamily || 'sans-serif'}`;
      const made = new UPlot(
        {
          width,
          height: 170,
          legend: { show: false },
          cursor: { drag: { x: false, y: false } },
          scales: { x: { time: true }, y: { range: (_u, min, max) => [Math.min(0, min), max > 0 ? max * 1.1 : 1] } },
          axes: [
            { stroke: soft, grid, ticks: grid, font, space: 90, values: (_u, list) => list.map((t) => stamp(new Date(t * 1000), clock.value, false)) },
            { stroke: soft, grid, ticks: grid, font, size: (_u, texts) => 18 + 7 * Math.max(4, ...(texts ?? []).map((t) => t.length)), values: (_u, list) => list.map((n) => (unit ? `${show(n)} ${unit}` : show(n))) },
          ],
          series: [{}, ...lines.map((l, i) => ({ label: l.name, stroke: color(colors[i]!), width: 2, dash: l.dash, points: { show: false } }))],
        },
        [at, ...lines.map((l) => l.values)],
        box.current!,
      );
      probe.remove();
      plot.current = made;
    });
    return () => {
      gone = true;
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names, width, some, theme.value, clock.value]);

  useEffect(() => {
    plot.current?.setData([at, ...lines.map((l) => l.values)]);
  }, [at, lines[0]?.values]);

  // The table has one row in so many samples, the newest first.
  const step = Math.max(1, Math.ceil(at.length / 60));
  const rows = at.map((_, i) => i).filter((i) => (at.length - 1 - i) % step === 0).reverse();
  return (
    <div class="chart">
      <div ref={box} role="img" aria-label={`${label}, as a plot; the table below has the values`} style={{ minHeight: '170px' }}>
        {!some && <p class="note">Gathering values …</p>}
      </div>
      <div class="legend">
        {lines.map((l, i) => (
          <span key={l.name}>
            <i class={l.dash ? (l.dash[0]! > 4 ? 'dashed' : 'dotted') : ''} style={{ borderColor: `var(${colors[i]})` }} />
            {l.name}: {l.values.length && !Number.isNaN(l.values.at(-1)!) ? show(l.values.at(-1)!) : '–'} {unit}
          </span>
        ))}
      </div>
      <details>
        <summary>As a table</summary>
        <div class="table" tabIndex={0} role="region" aria-label={`${label}, as a table`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Time ({clock.value})</th>
                {lines.map((l) => (
                  <th scope="col" class="right" key={l.name}>
                    {l.name} {unit}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((i) => (
                <tr key={at[i]}>
                  <td>{stamp(new Date(at[i]! * 1000), clock.value, false)}</td>
                  {lines.map((l) => (
                    <td class="right" key={l.name}>
                      {l.values[i] === undefined || Number.isNaN(l.values[i]) ? '–' : show(l.values[i]!)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </div>
  );
}
