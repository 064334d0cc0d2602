package tailorbird.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * How many changes a query's next batch may read while more are waiting, so that a batch takes about
 * {@link #TARGET_MS} and writes at most about {@link #TARGET_BYTES}. A batch has fixed costs of about 0.2 s, so small
 * batches are slow. Batches of a minute exceed the timeouts of HBase and Solr, and a slow sink or a busy machine soon
 * makes them so long. Bytes count because a join has all rows of one key in memory that a batch changes.
 *
 * <p>The query's sources ask for the limit before a batch and say whether it was reached. `joins.engine.spark_query`
 * reports each batch's time and bytes.
 */
public final class Pace {
  static final long TARGET_MS = 4000;
  static final long TARGET_BYTES = 128L << 20;
  /** The first batches are slow, because Java has not compiled the code yet. */
  static final long FIRST = 20_000;

  private static final long LEAST = 1000;
  private static final double MOST_CHANGE = 4; // one unusual batch must not decide all
  private static final Map<String, Pace> ALL = new ConcurrentHashMap<String, Pace>();

  private final long most;
  private long limit;
  private boolean reached;

  private Pace(long most) {
    this.most = most;
    this.limit = Math.min(FIRST, most);
  }

  /** The pace of the query with this name. A restarted query continues at its former pace. */
  public static synchronized Pace of(String query, long most) {
    Pace known = (Pace) ALL.get(query); // Janino knows no generics
    if (known == null || known.most != most) {
      known = new Pace(most);
      ALL.put(query, known);
    }
    return known;
  }

  static Pace of(String query) {
    Pace known = (Pace) ALL.get(query);
    if (known == null) throw new IllegalStateException("no pace for query " + query);
    return known;
  }

  /** The limit of all sources together, in changes. */
  public synchronized long limit() {
    return limit;
  }

  /** A source has more changes than the limit allows. */
  synchronized void reached() {
    reached = true;
  }

  /** A batch took so long and wrote so much. A batch below the limit says nothing about one at the limit. */
  public synchronized void took(long milliseconds, long bytes) {
    if (!reached) return;
    reached = false;
    double fits = Math.min((double) TARGET_MS / Math.max(1, milliseconds), (double) TARGET_BYTES / Math.max(1, bytes));
    double factor = Math.max(1 / MOST_CHANGE, Math.min(MOST_CHANGE, fits));
    limit = Math.min(most, Math.max(Math.min(LEAST, most), (long) (limit * factor)));
  }
}
