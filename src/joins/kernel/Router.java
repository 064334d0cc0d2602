package tailorbird.kernel;

import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;
import scala.collection.immutable.Seq;

/**
 * Turns records of the log (topic, partition, offset, key, value) into messages: `joins.steps.route`. It reads
 * Debezium's envelope in one pass over its bytes; the values of used columns stay JSON text. A record that cannot be
 * read becomes a REFUSED message; invalid data never throws here.
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
    for (int i = 0; i < all.length; i++) sources.put(all[i].name, all[i]);
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    return new Iterator<Object>() {
      private Source marked;
      private Iterator<Event> repaired = Collections.emptyIterator(); // the changes that a marker stands for

      public boolean hasNext() {
        while (out.isEmpty() && (repaired.hasNext() || log.hasNext())) {
          if (repaired.hasNext()) {
            marked.emit((Event) repaired.next(), out);
            continue;
          }
          Row record = (Row) log.next();
          if (record.isNullAt(4)) continue; // a tombstone repeats the delete before it
          Source source = (Source) sources.get(record.getString(0));
          if (source == null) source = (Source) sources.get(Source.tableNamed(record.get(3)));
          if (source == null) continue; // another table's, in the same topic
          Event marker = source.read(record, out);
          if (marker != null) repaired = (marked = source).marked(marker, out);
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
