package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/**
 * Makes an order for logs that have none: `joins.steps.state.latest_step`, then routing. State per row: its version and packed values, or of a deleted row the
 * version alone, which is forgotten after as long as the log is sure to keep what could come again.
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
    TTLConfig remembered = new TTLConfig(java.time.Duration.ofMillis(Message.at(Message.parsed(program), "tombstone_ms").asLong()));
    newest = getHandle().getValueState("newest_v2", Encoders.BINARY(), TTLConfig.NONE());
    deleted = getHandle().getValueState("deleted_v2", Encoders.BINARY(), remembered);
  }

  public scala.collection.Iterator<Object> handleInputRows(Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] k = (byte[]) group, last = null;
    List<Object> out = new ArrayList<Object>();
    while (input.hasNext()) {
      Object message = input.next();
      byte[] m = (byte[]) ((Tuple2) message)._2();
      if (m[0] != Message.PUT && m[0] != Message.GONE || k[0] != Message.STAR) out.add(message);
      else if (last == null || Message.v(m) > Message.v(last)) last = m;
    }
    if (last == null) return Message.asScala(out.iterator());
    byte[] live = (byte[]) newest.get(), state = live == null ? (byte[]) deleted.get() : live;
    if (state != null && Message.v(last) <= ByteBuffer.wrap(state).getLong()) return Message.asScala(out.iterator());
    Source source = sources[k[1]];
    Event event = new Event();
    ByteBuffer p = ByteBuffer.wrap(Message.p(last));
    event.ts = p.getLong();
    event.before = live == null ? null : Message.unpacked(ByteBuffer.wrap(live, 8, live.length - 8), source.width);
    event.after = last[0] == Message.GONE ? null : Message.unpacked(p, source.width);
    byte[] values = event.after == null ? Message.NONE : Message.packed(event.after);
    byte[] now = ByteBuffer.allocate(8 + values.length).putLong(Message.v(last)).put(values).array();
    (event.after == null ? deleted : newest).update(now);
    if (state != null && (live == null) != (event.after == null)) (live == null ? deleted : newest).clear();
    source.route(event, out);
    return Message.asScala(out.iterator());
  }
}
