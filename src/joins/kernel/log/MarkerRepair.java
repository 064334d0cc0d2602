package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;

/**
 * Finds the changes that a marker stands for by reading its partition again up to the marker:
 * `joins.steps.truncation.repaired`. At most MOST rows are held in memory; if there are more, half of the keys are
 * left for another read.
 */
final class MarkerRepair implements Iterator<Event> {
  private static final int MOST = 250000;
  private final Source source;
  private final Event marker;
  private final ArrayDeque<int[]> shares = new ArrayDeque<int[]>(); // {remainder, divisor} of keys' hashes
  private Iterator<?> rows = Collections.emptyIterator();
  private final ArrayDeque<Event> found = new ArrayDeque<Event>();

  /** A row's newest record, null once it is deleted, and its images that no later record has retracted. */
  private static final class RowImages {
    Event live;
    List<byte[][]> stale;
  }

  MarkerRepair(Source source, Event marker) {
    this.source = source;
    this.marker = marker;
    shares.add(new int[] {0, 1});
  }

  public boolean hasNext() {
    while (found.isEmpty() && (rows.hasNext() || !shares.isEmpty())) {
      if (rows.hasNext()) repair((RowImages) rows.next());
      else rows = read((int[]) shares.poll()).values().iterator();
    }
    return !found.isEmpty();
  }

  public Event next() {
    if (!hasNext()) throw new NoSuchElementException();
    return (Event) found.poll();
  }

  private void repair(RowImages row) {
    boolean gone = row.live != null && ends(marker, row.live);
    byte[][] after = row.live == null || gone ? null : row.live.after;
    if (gone) add(row.live, row.live.after, null);
    for (int i = 0; row.stale != null && i < row.stale.size(); i++) {
      byte[][] image = (byte[][]) row.stale.get(i);
      if (!same(image, after)) add(row.live, image, after);
    }
  }

  private void add(Event of, byte[][] before, byte[][] after) {
    Event event = new Event();
    event.op = after == null ? 'd' : 'u';
    event.before = before;
    event.after = after;
    event.ts = of == null ? marker.ts : of.ts;
    event.place = of == null ? -1 : of.place;
    event.always = true;
    event.repairs = true;
    // in a log without order, a row that the snapshot saw at that moment is younger
    event.version = source.latest() ? 2 * marker.sequence - 1 : marker.version;
    found.add(event);
  }

  private Map<Object, Object> read(int[] share) {
    Map<Object, Object> held = new LinkedHashMap<Object, Object>();
    try {
      PartitionReader past = source.past(marker);
      try {
        while (past.hasNext()) {
          Event event = source.again((Object[]) past.next(), marker);
          if (event == null) continue;
          if (event.op == 't') passed(event, held);
          else remember(event, held, share);
        }
      } finally {
        past.close();
      }
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("Kafka's client: " + e, e);
    }
    return held;
  }

  private void remember(Event event, Map<Object, Object> held, int[] share) {
    byte[] key = source.keyOf(event);
    if (!within(key, share)) return;
    Object at = ByteBuffer.wrap(key);
    RowImages row = (RowImages) held.get(at);
    if (row == null) held.put(at, row = new RowImages());
    Event known = row.live;
    if (source.latest() && known != null && event.sequence < known.sequence) return; // repeated, or late
    if (!source.latest() && known != null && !same(known.after, event.before) && !same(known.after, event.after)) {
      if (row.stale == null) row.stale = new ArrayList<byte[][]>(1);
      row.stale.add(known.after);
    }
    row.live = event.after == null ? null : event;
    if (row.live == null && row.stale == null) held.remove(at);
    if (held.size() > MOST) halve(held, share);
  }

  /** Applies an earlier marker: it has already deleted the rows older than it, and repaired the others. */
  private static void passed(Event earlier, Map<Object, Object> held) {
    Iterator<?> rows = held.values().iterator();
    while (rows.hasNext()) {
      RowImages row = (RowImages) rows.next();
      row.stale = null;
      if (row.live == null || ends(earlier, row.live)) rows.remove();
    }
  }

  private void halve(Map<Object, Object> held, int[] share) {
    shares.add(new int[] {share[0] + share[1], 2 * share[1]});
    share[1] *= 2;
    Iterator<?> keys = held.keySet().iterator();
    while (keys.hasNext()) if (!within(((ByteBuffer) keys.next()).array(), share)) keys.remove();
  }

  private static boolean within(byte[] key, int[] share) {
    int hash = Arrays.hashCode(key) * 0x9E3779B1; // without the factor, the low bits of numbers' texts are similar
    return (hash >>> 1) % share[1] == share[0];
  }

  private static boolean ends(Event marker, Event row) {
    return row.sequence < marker.sequence || marker.sequence == 0;
  }

  private static boolean same(byte[][] one, byte[][] other) {
    return Arrays.deepEquals(one, other);
  }
}
