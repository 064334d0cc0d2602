package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * The rows that point at a key meet the row that has it, for every hop of a level: `joins.state.hop_step`. State: per key the right side's payload; per
 * (key, row) the row's payload, or nothing where an assembling step keeps it. A key's rows are entries of their own, so a key with very many costs no more
 * per change than any other; and they are written without being read, since a read costs more than a write.
 */
public final class KeyedJoin extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private transient Hop[] hops;
  private transient ValueState<byte[]> rightSide;
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
    rightSide = getHandle().getValueState("right_v1", Encoders.BINARY(), TTLConfig.NONE());
    rows = getHandle().getMapState("rows_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] k = (byte[]) group, newestRight = null;
    Hop hop = k[0] < 0 ? null : hops[k[0]];
    List<Object> out = new ArrayList<Object>();
    Map<Object, byte[]> newest = new HashMap<Object, byte[]>();
    while (input.hasNext()) {
      Object message = input.next();
      byte[] m = (byte[]) ((Tuple2) message)._2();
      if (hop == null) out.add(message); // for a step further up
      else if (m[0] <= Message.DIM_GONE) newestRight = newestRight == null || Message.v(m) >= Message.v(newestRight) ? m : newestRight;
      else {
        Object row = ByteBuffer.wrap(Message.r(m));
        byte[] other = (byte[]) newest.get(row), last = other == null || Message.v(m) >= Message.v(other) ? m : other;
        if (other != null && last[0] == Message.NEW) last[0] = Message.PUT; // what it hides may have shown the row
        newest.put(row, last);
      }
    }
    if (newestRight == null && newest.isEmpty()) return Message.asScala(out.iterator());
    boolean matches = k.length < 2 || k[1] != 0; // NULL matches nothing: such a row has a key of its own, which keeps no state
    byte[] before = matches ? (byte[]) rightSide.get() : null;
    if (before == null) before = Message.NONE;
    byte[] right = newestRight == null ? before : Message.p(newestRight);
    boolean changed = (before.length == 0) != (right.length == 0) || right.length > 0 && !Arrays.equals(right, 8, right.length, before, 8, before.length);
    if (!changed) right = before; // newer perhaps, but the same
    else if (right.length > 0) rightSide.update(right);
    else rightSide.clear();
    Iterator<Map.Entry<Object, byte[]>> changes = newest.entrySet().iterator();
    while (changes.hasNext()) {
      Map.Entry change = (Map.Entry) changes.next();
      byte[] row = ((ByteBuffer) change.getKey()).array(), m = (byte[]) change.getValue(), own = Message.p(m);
      boolean put = m[0] == Message.PUT || m[0] == Message.NEW;
      // only what an inner join hides needs to be known before it is written: a row that was here without a right side was not shown
      boolean asks = hop.inner && hop.star < 0 && matches && (put ? right.length == 0 : before.length == 0);
      boolean here = asks && rows.containsKey(row), shown = here ? before.length > 0 : m[0] != Message.NEW;
      if (matches && put) rows.updateValue(row, hop.star < 0 ? own : Message.NONE);
      if (matches && !put) rows.removeKey(row);
      if (put) hop.row(row, own, right, shown, out);
      else if (m[0] == Message.GONE && shown) hop.gone(row, out);
    }
    if (!changed) return Message.asScala(out.iterator());
    return Message.asScala(new Listed(out, rows.iterator(), hop, right, newest.keySet()));
  }

  /** The batch's messages, then one for every other row at a key whose right side changed: read as Spark asks, so memory does not grow with their number. */
  private static final class Listed implements Iterator<Object> {
    private final ArrayDeque<Object> ready = new ArrayDeque<Object>();
    private final scala.collection.Iterator<Tuple2<byte[], byte[]>> listed;
    private final Hop hop;
    private final byte[] right;
    private final Set<Object> came;

    Listed(List<Object> first, scala.collection.Iterator<Tuple2<byte[], byte[]>> listed, Hop hop, byte[] right, Set<Object> came) {
      this.ready.addAll(first);
      this.listed = listed;
      this.hop = hop;
      this.right = right;
      this.came = came;
    }

    public boolean hasNext() {
      while (ready.isEmpty() && listed.hasNext()) {
        Tuple2 entry = (Tuple2) listed.next();
        byte[] row = (byte[]) entry._1();
        if (came.contains(ByteBuffer.wrap(row))) continue;
        if (hop.star >= 0) ready.add(hop.part(row, right));
        else hop.row(row, (byte[]) entry._2(), right, true, ready);
      }
      return !ready.isEmpty();
    }

    public Object next() {
      if (!hasNext()) throw new NoSuchElementException();
      return ready.poll();
    }
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

    /** A row of the batch, or at a key whose right side changed. */
    void row(byte[] row, byte[] own, byte[] right, boolean shown, Collection<Object> out) {
      if (star >= 0 && part > 0) out.add(part(row, right));
      else if (star >= 0) {
        byte[] both = ByteBuffer.allocate(4 + own.length + right.length).putInt(own.length).put(own).put(right).array();
        out.add(Message.of(Message.STAR | star, row, Message.PUT, 1, Message.NONE, both));
      } else if (right.length > 0 || !inner) out.add(Message.result(target, row, Message.joined(own, right, nulls), 1));
      else if (shown) out.add(Message.result(target, row, null, 0));
    }

    Tuple2<byte[], byte[]> part(byte[] row, byte[] right) {
      return Message.of(Message.STAR | star, row, Message.PART, 0, new byte[] {(byte) part}, right);
    }

    void gone(byte[] row, Collection<Object> out) {
      if (star < 0) out.add(Message.result(target, row, null, 0));
      else if (part == 0) out.add(Message.of(Message.STAR | star, row, Message.GONE, 0, Message.NONE, Message.NONE));
    }
  }
}
