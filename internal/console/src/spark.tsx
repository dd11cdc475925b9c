// Spark is the course of a figure beside it, for a glance; the plots have axes and tables.
export function Spark({ values }: { values: number[] }) {
  const shown = values.slice(-60).map((v) => (Number.isNaN(v) ? 0 : v));
  if (shown.length < 2) return <span class="spark-none">since this page opened</span>;
  const top = Math.max(...shown, 1e-9);
  const step = 100 / (shown.length - 1);
  const points = shown.map((v, i) => `${(i * step).toFixed(1)},${(18 - (v / top) * 16).toFixed(1)}`).join(' ');
  return (
    <svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points} />
    </svg>
  );
}
