package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/**
 * Creates an order for logs that have none: `joins.steps.state.latest_step`, then routing. State per row: its version
 * and packed values, or only the version of a deleted row. The latter expires after the time in which the log may
 * repeat older events.
 */
public final class Latest extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private final Seq[][] conditions;
  private transient Source[] sources;
  private transient ValueState<byte[]> newest, deleted;

  public Latest(String program, Seq[][] conditions) {
    this.program = program;
    this.conditions = conditions;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    Latest latest = new Latest(program, Filter.resolved(messages.sparkSession(), program));
    return Message.through(messages, latest, TimeMode.ProcessingTime());
  }

  public void init(OutputMode mode, TimeMode time) {
    sources = Source.all(program, conditions);
    long tombstones = Message.at(Message.parsed(program), "tombstone_ms").asLong();
    TTLConfig remembered = new TTLConfig(Duration.ofMillis(tombstones));
    newest = getHandle().getValueState("newest_v2", Encoders.BINARY(), TTLConfig.NONE());
    deleted = getHandle().getValueState("deleted_v2", Encoders.BINARY(), remembered);
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group, last = null;
    List<Object> out = new ArrayList<Object>();
    while (input.hasNext()) {
      Object next = input.next();
      byte[] message = (byte[]) ((Tuple2) next)._2();
      if (message[0] != Message.PUT && message[0] != Message.GONE || key[0] != Message.MULTI_JOIN) out.add(next);
      else if (last == null || Message.version(message) > Message.version(last)) last = message;
    }
    if (last != null) apply(sources[key[1]], last, out);
    return Message.asScala(out.iterator());
  }

  /** Stores and routes a row's newest message of the batch, unless the state is newer. */
  private void apply(Source source, byte[] message, Collection<Object> out) {
    byte[] live = (byte[]) newest.get(), known = live == null ? (byte[]) deleted.get() : live;
    if (known != null && Message.version(message) <= ByteBuffer.wrap(known).getLong()) return;
    Event event = new Event();
    ByteBuffer payload = ByteBuffer.wrap(Message.payload(message));
    event.ts = payload.getLong();
    event.place = payload.getLong();
    event.before = live == null ? null : Message.unpacked(ByteBuffer.wrap(live, 8, live.length - 8), source.width);
    event.after = message[0] == Message.GONE ? null : Message.unpacked(payload, source.width);
    byte[] values = event.after == null ? Message.NONE : Message.packed(event.after);
    byte[] now = ByteBuffer.allocate(8 + values.length).putLong(Message.version(message)).put(values).array();
    (event.after == null ? deleted : newest).update(now);
    if (known != null && (live == null) != (event.after == null)) (live == null ? deleted : newest).clear();
    source.route(event, out);
  }
}
