// The selection as URL parameters: q, range or from and to, f.COLUMN=value, n.COLUMN=1 (no value), b.COLUMN=low..high.

export function read(search) {
  const params = new URLSearchParams(search);
  const picks = new Map();
  const between = new Map();
  for (const [name, value] of params) {
    const [, kind, column] = /^([fnb])\.(.+)$/.exec(name) ?? [];
    if (kind === "b") between.set(column, value);
    else if (kind) {
      if (!picks.has(column)) picks.set(column, new Set());
      picks.get(column).add(kind === "n" ? null : value);
    }
  }
  const one = (name) => params.get(name) ?? "";
  return { q: one("q"), range: one("range"), from: one("from"), to: one("to"), picks, between };
}

export function write(state) {
  const params = new URLSearchParams();
  for (const name of ["q", "range", "from", "to"]) if (state[name]) params.set(name, state[name]);
  for (const column of [...state.picks.keys()].sort()) {
    for (const value of [...state.picks.get(column)].sort()) {
      if (value === null) params.append(`n.${column}`, "1");
      else params.append(`f.${column}`, value);
    }
  }
  for (const column of [...state.between.keys()].sort()) params.append(`b.${column}`, state.between.get(column));
  return params.toString();
}

export function copy(state) {
  const picks = new Map([...state.picks].map(([name, values]) => [name, new Set(values)]));
  return { ...state, picks, between: new Map(state.between) };
}

export function toggle(state, column, value) {
  const values = state.picks.get(column) ?? new Set();
  if (!values.delete(value)) values.add(value);
  if (values.size) state.picks.set(column, values);
  else state.picks.delete(column);
}

export const instant = (ms) => new Date(ms).toISOString();
