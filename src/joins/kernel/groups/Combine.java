package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;
import scala.Tuple2;

/**
 * Sums the contributions of rows to their groups within a partition: `joins.steps.contributions`. A hot group sends
 * one message per partition, however many rows it has.
 */
public final class Combine implements MapPartitionsFunction<Object, Object> {
  private static final int MOST = 100000; // groups and tuples that are held at once
  private final String program;

  public Combine(String program) {
    this.program = program;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    Dataset typed = messages.toDF(new String[] {"_1", "_2"}).as((Encoder) Message.encoder());
    MapPartitionsFunction combine = (MapPartitionsFunction) new Combine(program);
    return typed.mapPartitions(combine, (Encoder) Message.encoder()).toDF(new String[] {"k", "m"});
  }

  public Iterator<Object> call(final Iterator<Object> messages) {
    final Held held = new Held(Group.of(program));
    return new Iterator<Object>() {
      private boolean more = true;

      public boolean hasNext() {
        while (held.out.isEmpty() && more) {
          more = messages.hasNext();
          if (more) held.take((Tuple2) messages.next());
          else held.flush();
        }
        return !held.out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return held.out.poll();
      }
    };
  }

  /** The groups of a partition, and the messages that leave it. */
  private static final class Held {
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    private final Group group;
    private final Map<Object, Partial> partials = new HashMap<Object, Partial>();
    private final int[] at;
    private final Bytes scratch = new Bytes(64), row = new Bytes(64);
    private final Contribution contribution;
    private byte[] lastKey; // rows of a hot group often follow one another
    private Partial last;
    private int tuples;

    Held(Group group) {
      this.group = group;
      contribution = new Contribution(group);
      at = new int[group.arguments.length + 1];
      if (group.always != null) of(group.always, 0); // always emitted, so that its row exists
    }

    void take(Tuple2 one) {
      byte[] k = (byte[]) one._1(), message = (byte[]) one._2();
      if (message == null) return; // an image of a change that does not satisfy WHERE
      if (message[0] == Message.EXACT_BEFORE || message[0] == Message.EXACT_AFTER) {
        takeRow(message);
        return;
      }
      if (message[0] != Message.ADDED && message[0] != Message.TAKEN) {
        out.add(one);
        return;
      }
      Partial partial = k == lastKey || Arrays.equals(k, lastKey) ? last : of(k, 1);
      Texts.find(message, Message.payloadAt(message), at);
      int sign = message[0] == Message.ADDED ? 1 : -1;
      partial.saw(message);
      tuples += partial.add(message, at, sign, scratch);
      if (partials.size() + tuples > MOST) flush();
    }

    private void takeRow(byte[] message) {
      row.length = 0;
      contribution.write(message, row).put(','); // ends the last argument, as the buffer may be longer
      int arguments = Contribution.argumentsAt(row.data);
      boolean same = lastKey != null && Arrays.equals(lastKey, 1, lastKey.length, row.data, 4, arguments);
      if (!same) {
        byte[] k = Arrays.copyOfRange(row.data, 3, arguments);
        of(k, 1);
      }
      Texts.find(row.data, arguments, at);
      tuples += last.add(row.data, at, message[0] == Message.EXACT_AFTER ? 1 : -1, scratch);
      last.sawRow(message);
      if (partials.size() + tuples > MOST) flush();
    }

    private Partial of(byte[] k, int from) {
      Object key = ByteBuffer.wrap(k, from, k.length - from);
      last = (Partial) partials.get(key);
      if (last == null) partials.put(key, last = new Partial(group, Arrays.copyOfRange(k, from, k.length)));
      lastKey = from == 0 ? null : k;
      return last;
    }

    void flush() {
      Iterator<?> each = partials.values().iterator();
      while (each.hasNext()) out.add(((Partial) each.next()).message());
      partials.clear();
      lastKey = null;
      tuples = 0;
    }
  }
}
