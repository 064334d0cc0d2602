package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * Keeps the rows that satisfy conditions on the time, and deletes each when its time is over:
 * `joins.steps.temporal.temporal_step`. State per row: when it must be visited, whether it was emitted, its payload. A
 * timer of Spark visits it then. Timers are stored in the order of their times, so a batch reads only those that are
 * due.
 */
public final class Temporal extends StatefulProcessor<Object, Object, Object> {
  private static final long NO_VISIT = Long.MAX_VALUE, MILLIS = 1000;
  private static final int SHOWN = 8, PAYLOAD = 9; // offsets in the state
  private final String program;
  private transient Span span;
  private transient int target;
  private transient String checkpoint;
  private transient long clock; // in milliseconds; 0: not read yet
  private transient ValueState<byte[]> rows;

  public Temporal(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Temporal(program), TimeMode.ProcessingTime());
  }

  public void init(OutputMode mode, TimeMode time) {
    JsonNode parsed = Message.parsed(program), described = Message.at(parsed, "temporal");
    span = new Span(Message.at(described, "bounds"));
    target = Message.at(described, "target").asInt();
    checkpoint = Message.at(described, "checkpoint").asText();
    clock = 0; // Spark calls this method in the driver, too, outside of a batch
    rows = getHandle().getValueState("span_v1", Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object at, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) at, newest = null;
    List<Object> out = new ArrayList<Object>(1);
    if (key[0] < 0) { // a notice
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    while (input.hasNext()) {
      byte[] message = (byte[]) ((Tuple2) input.next())._2();
      if (newest == null || Message.newer(message, newest)) newest = message;
    }
    byte[] stored = (byte[]) rows.get();
    long due = stored == null ? NO_VISIT : ByteBuffer.wrap(stored).getLong();
    long visit = visited(key, stored, Message.payload(newest), true, out);
    if (due != visit && due != NO_VISIT) getHandle().deleteTimer(due);
    if (due != visit && visit != NO_VISIT) getHandle().registerTimer(visit);
    return Message.asScala(out.iterator());
  }

  public scala.collection.Iterator<Object> handleExpiredTimer(
      Object at, TimerValues timers, ExpiredTimerInfo expired) {
    List<Object> out = new ArrayList<Object>(1);
    byte[] stored = (byte[]) rows.get();
    long due = stored == null ? NO_VISIT : ByteBuffer.wrap(stored).getLong();
    if (due == expired.getExpiryTimeInMs()) { // Spark deletes this timer afterwards
      byte[] payload = Arrays.copyOfRange(stored, PAYLOAD, stored.length);
      long visit = visited((byte[]) at, stored, payload, false, out);
      if (visit != NO_VISIT) getHandle().registerTimer(visit);
    }
    return Message.asScala(out.iterator());
  }

  /**
   * Emits a row, or its deletion, as its span requires now, and stores it while the span is not over. Returns when it
   * must be visited. `payload` is empty for a deleted row; `changed`: a change of the row has come.
   */
  private long visited(byte[] key, byte[] stored, byte[] payload, boolean changed, Collection<Object> out) {
    boolean shown = stored != null && stored[SHOWN] == 1;
    if (clock == 0) clock = BatchClock.ofThisBatch(checkpoint);
    long now = clock * MILLIS;
    long[] times = payload.length == 0 ? new long[] {Span.NEVER, Span.NEVER} : span.of(payload);
    boolean live = times[0] <= now && now < times[1];
    byte[] id = Arrays.copyOfRange(key, 1, key.length);
    if (live && (changed || !shown)) out.add(Message.result(target, id, payload, 1));
    else if (shown && !live) out.add(Message.result(target, id, null, 0));
    if (payload.length == 0 || now >= times[1] || times[0] >= times[1]) {
      if (stored != null) rows.clear();
      return NO_VISIT;
    }
    long next = live ? times[1] : times[0];
    long visit = next >= Span.NEVER ? NO_VISIT : -Math.floorDiv(-next, MILLIS);
    ByteBuffer state = ByteBuffer.allocate(PAYLOAD + payload.length).putLong(visit).put((byte) (live ? 1 : 0));
    rows.update(state.put(payload).array());
    return visit;
  }
}
