// Measures the time from a change's commit at its source until this page shows it.
//
// A row may also enter the page because the filters changed or another row left. That is not an arrival. So a version
// counts only if it was indexed after everything in the previous answer (less a leeway). Times are those of the servers:
// the source's clock is compared with the clock of this page's server.

const MINUTE = 60_000;
// documents that are posted concurrently may become visible in another order
const LEEWAY = 2_000;

export class Freshness {
  #known = new Map();
  #samples = [];
  #indexed = null;

  // Treat the next answer as the baseline, because the selection changed or the server did not answer.
  restart() {
    this.#known.clear();
    this.#indexed = null;
  }

  // Record an answer and return the keys of the rows that have just arrived. Pass every answer once, in order.
  observe({ rows, now_ms, indexed_ms }) {
    const known = new Map();
    const arrived = new Set();
    for (const row of rows) {
      const seen = `${row.version} ${row.key}`;
      known.set(seen, this.#known.get(seen) ?? null);
      if (this.#known.has(seen) || this.#indexed === null || row.indexed_ms === null || row.committed_ms === null) continue;
      if (row.indexed_ms < this.#indexed - LEEWAY) continue;
      const latency = Math.max(now_ms - row.committed_ms, 0);
      known.set(seen, latency);
      arrived.add(row.key);
      this.#samples.push([now_ms, latency]);
    }
    this.#known = known;
    this.#indexed = Math.max(this.#indexed ?? 0, indexed_ms ?? 0);
    return arrived;
  }

  // The milliseconds from commit to visibility of a row, or null if it was there before this page.
  of(row) {
    return this.#known.get(`${row.version} ${row.key}`) ?? null;
  }

  // The median of the last minute in milliseconds, or null if no row arrived.
  p50(now_ms) {
    this.#samples = this.#samples.filter(([at]) => at >= now_ms - MINUTE);
    const sorted = this.#samples.map(([, latency]) => latency).sort((a, b) => a - b);
    if (!sorted.length) return null;
    const middle = sorted.length >> 1;
    return Math.round(sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2);
  }
}
