package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * The rows that point at a key meet the row that has it, for every hop of a level: `joins.steps.state.hop_step`. State: per key the right side's payload and, with
 * it, the first few rows, of each its payload, or nothing where an assembling step keeps it: so they need no search of the store. Once they are more, each is
 * an entry of its own, written without being read, and a key with very many costs no more per change than any other.
 */
public final class KeyedJoin extends StatefulProcessor<Object, Object, Object> {
  private static final int FEW = 320, APART = -1; // bytes: two or three rows of a common width, or a dozen names of rows
  private final String program;
  private transient Hop[] hops;
  private transient ValueState<byte[]> keys;
  private transient MapState<byte[], byte[]> rows;

  public KeyedJoin(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new KeyedJoin(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    hops = new Hop[128];
    JsonNode described = Message.at(Message.parsed(program), "hops");
    for (int i = 0; i < described.size(); i++) hops[Message.at(Message.at(described, Integer.valueOf(i)), "hop").asInt()] = new Hop(Message.at(described, Integer.valueOf(i)));
    keys = getHandle().getValueState("key_v1", Encoders.BINARY(), TTLConfig.NONE());
    rows = getHandle().getMapState("rows_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] k = (byte[]) group, newestRight = null;
    final Hop hop = k[0] < 0 ? null : hops[k[0]];
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    final Map<Object, byte[]> newest = new HashMap<Object, byte[]>();
    Set<Object> sure = null; // rows that may be shown from where nobody said that they were
    while (input.hasNext()) {
      Object message = input.next();
      byte[] m = (byte[]) ((Tuple2) message)._2();
      if (hop == null) out.add(message); // for a step further up
      else if (m[0] <= Message.DIM_GONE) newestRight = newestRight == null || Message.newer(m, newestRight) ? m : newestRight;
      else {
        Object row = ByteBuffer.wrap(Message.r(m));
        byte[] other = (byte[]) newest.get(row), last = other == null || Message.v(m) >= Message.v(other) ? m : other;
        if (other != null && last[0] == Message.NEW) last[0] = Message.PUT; // what it hides may have shown the row
        if (m[0] == Message.SURE || m[0] == Message.LOST) {
          if (sure == null) sure = new HashSet<Object>();
          sure.add(row);
        }
        newest.put(row, last);
      }
    }
    if (newestRight == null && newest.isEmpty()) return Message.asScala(out.iterator());
    boolean matches = k.length < 2 || k[1] != 0; // NULL matches nothing: such a row has a key of its own, which keeps no state
    byte[] stored = matches ? (byte[]) keys.get() : null;
    int count = stored == null ? 0 : (int) stored[0];
    ByteBuffer packed = stored == null ? null : ByteBuffer.wrap(stored, 1, stored.length - 1);
    byte[][] parts = new byte[][] {Message.NONE};
    if (packed != null) parts = Message.unpacked(packed, 1 + 2 * Math.max(0, count));
    int left = count == APART && packed.hasRemaining() ? packed.getInt() : 0;
    boolean some = false; // whether a row is put here, so that there is one
    final Map<Object, Object> few = count == APART ? null : new LinkedHashMap<Object, Object>();
    for (int i = 1; i < parts.length; i += 2) few.put(ByteBuffer.wrap(parts[i]), new Tuple2<byte[], byte[]>(parts[i], parts[i + 1]));
    byte[] before = parts[0], newer = newestRight == null ? before : Message.p(newestRight);
    boolean changed = (before.length == 0) != (newer.length == 0) || newer.length > 0 && !Arrays.equals(newer, 8, newer.length, before, 8, before.length);
    final byte[] right = changed ? newer : before; // newer perhaps, but the same
    for (Iterator<Map.Entry<Object, byte[]>> changes = newest.entrySet().iterator(); changes.hasNext(); ) {
      Map.Entry change = (Map.Entry) changes.next();
      byte[] row = ((ByteBuffer) change.getKey()).array(), m = (byte[]) change.getValue(), own = Message.p(m), kept = hop.star < 0 ? own : Message.NONE;
      boolean put = m[0] == Message.PUT || m[0] == Message.NEW || m[0] == Message.SURE;
      // only what an inner join hides needs to be known before it is written: a row that was here without a right side was not shown
      boolean asks = hop.inner && hop.star < 0 && matches && (put ? right.length == 0 : before.length == 0);
      boolean here = asks && (few == null ? rows.containsKey(row) : few.containsKey(change.getKey())), shown = here ? before.length > 0 : m[0] != Message.NEW;
      shown = shown || sure != null && sure.contains(change.getKey());
      some = some || put;
      if (few == null && put) rows.updateValue(row, kept);
      else if (few == null) {
        rows.removeKey(row);
        left--;
      } else if (put) few.put(change.getKey(), new Tuple2<byte[], byte[]>(row, kept));
      else few.remove(change.getKey());
      if (put) hop.row(row, own, right, Message.v(m) + 2, shown, out);
      else if ((m[0] == Message.GONE || m[0] == Message.LOST) && shown) hop.gone(row, Message.v(m) + 2, out);
    }
    if (matches && (changed || few != null || right.length == 0)) store(right, few, left, some);
    if (!changed) return Message.asScala(out.iterator());
    // then one for every other row at the key: read as Spark asks, so memory does not grow with their number
    final scala.collection.Iterator<Object> listed = few == null ? (scala.collection.Iterator) rows.iterator() : Message.asScala(few.values().iterator());
    return Message.asScala(new Iterator<Object>() {
      public boolean hasNext() {
        while (out.isEmpty() && listed.hasNext()) {
          Tuple2 entry = (Tuple2) listed.next();
          byte[] row = (byte[]) entry._1();
          if (newest.containsKey(ByteBuffer.wrap(row))) continue;
          if (hop.star >= 0) out.add(hop.part(row, right, 1));
          else hop.row(row, (byte[]) entry._2(), right, 1, true, out);
        }
        return !out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return out.poll();
      }
    });
  }

  /** `left`: at least so many rows are entries of their own; `some`: there is one. */
  private void store(byte[] right, Map<Object, Object> few, int left, boolean some) {
    List<Object> parts = new ArrayList<Object>(Collections.singleton(right));
    int size = 0;
    for (Iterator<Object> each = few == null ? Collections.emptyIterator() : few.values().iterator(); each.hasNext(); ) {
      Tuple2 one = (Tuple2) each.next();
      Collections.addAll(parts, new Object[] {one._1(), one._2()});
      size += 8 + ((byte[]) one._1()).length + ((byte[]) one._2()).length;
    }
    boolean apart = few == null || size > FEW, bare = right.length == 0;
    for (int i = 1; size > FEW && i < parts.size(); i += 2) {
      rows.updateValue((byte[]) parts.get(i), (byte[]) parts.get(i + 1));
      left++;
    }
    if (bare && few == null && left <= 0 && !some) left = counted();
    if (bare && (few == null ? left <= 0 && !some : few.isEmpty())) {
      keys.clear();
      return;
    }
    byte[] all = Message.packed(apart ? new byte[][] {right} : (byte[][]) parts.toArray(new byte[0][]));
    ByteBuffer out = ByteBuffer.allocate(1 + all.length + (apart && bare ? 4 : 0));
    out.put((byte) (apart ? APART : few.size())).put(all);
    if (apart && bare) out.putInt(Math.max(0, left));
    keys.update(out.array());
  }

  /**
   * How many rows are entries of their own. Read to the end, since Spark keeps an iterator open that is not, until the
   * task ends: a key without a right side has to know when its last row goes, and would leave one with every batch.
   * Asked again only when as many rows have gone as there were, it costs a change no more than a constant.
   */
  private int counted() {
    int count = 0;
    for (scala.collection.Iterator<?> all = rows.iterator(); all.hasNext(); all.next()) count++;
    return count;
  }

  /** What the program says of a hop, and the messages that leave it. */
  private static final class Hop {
    final int star, part, target;
    final boolean inner;
    final byte[] nulls;

    Hop(JsonNode hop) {
      star = Message.at(hop, "star").asInt(); // the step that takes its parts; -1: whole rows leave
      part = Message.at(hop, "part").asInt();
      target = Message.at(hop, "target").asInt();
      inner = Message.at(hop, "inner").asBoolean();
      nulls = Message.nulls(Message.at(hop, "width").asInt());
    }

    /** A row of the batch, or at a key whose right side changed: what comes, in its order, beats what only speaks. */
    void row(byte[] row, byte[] own, byte[] right, long v, boolean shown, Collection<Object> out) {
      if (star >= 0 && part > 0) out.add(part(row, right, v));
      else if (star >= 0) {
        byte[] both = ByteBuffer.allocate(4 + own.length + right.length).putInt(own.length).put(own).put(right).array();
        out.add(Message.of(Message.STAR | star, row, Message.PUT, v, Message.NONE, both));
      } else if (right.length > 0 || !inner) out.add(Message.result(target, row, Message.joined(own, right, nulls), v));
      else if (shown) out.add(Message.result(target, row, null, 0));
    }

    Tuple2<byte[], byte[]> part(byte[] row, byte[] right, long v) {
      return Message.of(Message.STAR | star, row, Message.PART, v, new byte[] {(byte) part}, right);
    }

    void gone(byte[] row, long v, Collection<Object> out) {
      if (star < 0) out.add(Message.result(target, row, null, 0));
      else if (part == 0) out.add(Message.of(Message.STAR | star, row, Message.GONE, v, Message.NONE, Message.NONE));
    }
  }
}
