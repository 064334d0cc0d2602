package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/** Makes an order for logs that have none: `joins.state.latest_step`, then routing. State per row: version, and its packed values unless it was deleted. */
public final class Latest extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private transient Router.Source[] sources;
  private transient ValueState<byte[]> newest;

  public Latest(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Latest(program));
  }

  public void init(OutputMode mode, TimeMode time) {
    sources = Router.Source.all(program);
    newest = getHandle().getValueState("newest_v1", Encoders.BINARY(), TTLConfig.NONE());
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
    byte[] state = (byte[]) newest.get();
    if (state != null && Message.v(last) <= ByteBuffer.wrap(state).getLong()) return Message.asScala(out.iterator());
    Router.Source source = sources[k[1]];
    ByteBuffer p = ByteBuffer.wrap(Message.p(last));
    Router.Event event = new Router.Event();
    event.ts = p.getLong();
    event.before = state == null || state.length == 8 ? null : Message.unpacked(ByteBuffer.wrap(state, 8, state.length - 8), source.columns.length);
    event.after = last[0] == Message.GONE ? null : Message.unpacked(p, source.columns.length);
    byte[] values = event.after == null ? Message.NONE : Message.packed(event.after);
    newest.update(ByteBuffer.allocate(8 + values.length).putLong(Message.v(last)).put(values).array());
    source.route(event, 0, true, out);
    return Message.asScala(out.iterator());
  }
}
