package tailorbird.kernel;

import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;
import scala.collection.immutable.Seq;

/**
 * Records of the log (topic, partition, offset, key, value) → messages: `joins.steps.route`. Debezium's envelope is
 * read in one pass over its bytes, and the values of used columns stay JSON text. What can not be read becomes a
 * REFUSED message; nothing here raises for bad data.
 */
public final class Router implements MapPartitionsFunction<Object, Object> {
  private final String program;
  private final Seq[][] conditions;

  public Router(String program, Seq[][] conditions) {
    this.program = program;
    this.conditions = conditions;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  public static Dataset<Row> apply(Dataset<Row> log, String program) {
    Dataset picked = log.select("topic", new String[] {"partition", "offset", "key", "value"});
    Seq[][] conditions = Filter.resolved(log.sparkSession(), program);
    MapPartitionsFunction router = (MapPartitionsFunction) new Router(program, conditions);
    return picked.mapPartitions(router, (Encoder) Message.encoder()).toDF(new String[] {"k", "m"});
  }

  public Iterator<Object> call(final Iterator<Object> log) {
    final Map<String, Source> sources = new HashMap<String, Source>();
    Source[] all = Source.all(program, conditions);
    for (int i = 0; i < all.length; i++) sources.put(all[i].topic, all[i]);
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    return new Iterator<Object>() {
      private Source marked;
      private Iterator<Event> mended = Collections.emptyIterator(); // what a marker stands for, told one by one

      public boolean hasNext() {
        while (out.isEmpty() && (mended.hasNext() || log.hasNext())) {
          if (mended.hasNext()) {
            marked.told((Event) mended.next(), out);
            continue;
          }
          Row record = (Row) log.next();
          if (record.isNullAt(4)) continue; // a tombstone repeats the delete before it
          Source source = (Source) sources.get(record.getString(0));
          Event marker = source.read(record, out);
          if (marker != null) mended = (marked = source).marked(marker, out);
        }
        return !out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return out.poll();
      }
    };
  }
}
