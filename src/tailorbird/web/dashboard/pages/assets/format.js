// Format numbers and times for the browser's locale. Times are shown in UTC, as they are stored.

const plain = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const percent = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1, signDisplay: "exceptZero" });

export const NOTHING = "—";

export function numbers(form) {
  const [, before, grouped, digits, suffix] = /^([^0]*)0(,0)?(\.0+)?([^0]*)$/.exec(form ?? "") ?? [];
  if (before === undefined) return (value) => (value === null ? NOTHING : plain.format(value));
  const places = (digits ?? ".").length - 1;
  const format = new Intl.NumberFormat(undefined, {
    useGrouping: Boolean(grouped),
    minimumFractionDigits: places,
    maximumFractionDigits: places,
  });
  return (value) => (value === null ? NOTHING : before + format.format(value) + suffix);
}

export const compact = (value) => short.format(value);
export const change = (now, then) => percent.format((now - then) / Math.abs(then));

const FORMS = {
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  minute: { hour: "2-digit", minute: "2-digit" },
  hour: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" },
  day: { day: "numeric", month: "short" },
  month: { month: "short", year: "numeric" },
  year: { year: "numeric" },
};

// Format instants no finer than the bars, with the year if the axis spans several years.
export function times(gap, edges) {
  const unit = gap.replace(/^\d+ /, "").replace(/s$/, "");
  const form = { ...(FORMS[unit] ?? FORMS.day) };
  const years = edges.length && new Date(edges[0]).getUTCFullYear() !== new Date(edges.at(-1)).getUTCFullYear();
  if (years) form.year = "numeric";
  const days = edges.length && edges.at(-1) - edges[0] > 86400000;
  if (days && (unit === "minute" || unit === "second")) Object.assign(form, { day: "numeric", month: "short" });
  const format = new Intl.DateTimeFormat(undefined, { ...form, timeZone: "UTC" });
  return (ms) => format.format(new Date(ms));
}

const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", timeZone: "UTC" });
export const moment = (ms) => (ms === null ? NOTHING : whole.format(new Date(ms)));

export function stored(value) {
  if (value === null || value === undefined) return NOTHING;
  if (Array.isArray(value)) return value.map(stored).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

export function when(text) {
  if (Array.isArray(text)) return text.map(when).join(", ");
  return stored(text).replace(/Z$/, "").replace("T", " ").replace(/\.\d+$/, "");
}

export function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 2) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ago` : `${plain.format(Math.floor(hours / 24))} days ago`;
}

export function latency(ms) {
  if (ms < 1000) return `${ms} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min`;
}
