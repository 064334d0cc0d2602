package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;
import scala.Tuple2;

/** Passes a fragment's rows to the fragment that reads them: some of their values, with a tag before their ids. */
public final class Project implements MapPartitionsFunction<Object, Object> {
  private final String program;

  public Project(String program) {
    this.program = program;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    Dataset typed = messages.toDF(new String[] {"_1", "_2"}).as((Encoder) Message.encoder());
    MapPartitionsFunction project = (MapPartitionsFunction) new Project(program);
    return typed.mapPartitions(project, (Encoder) Message.encoder()).toDF(new String[] {"k", "m"});
  }

  public Iterator<Object> call(final Iterator<Object> messages) {
    JsonNode described = Message.parsed(program), tagged = Message.at(described, "tag");
    JsonNode picked = Message.at(described, "picks");
    final int[] picks = picked.isNull() ? null : Source.ints(picked);
    final int[] at = picks == null ? null : Texts.room(picks);
    final byte[] tag = tagged.isNull() ? Message.NONE : (tagged.asText() + ",").getBytes(StandardCharsets.UTF_8);
    return new Iterator<Object>() {
      public boolean hasNext() {
        return messages.hasNext();
      }

      public Object next() {
        Tuple2 one = (Tuple2) messages.next();
        byte[] k = (byte[]) one._1(), m = (byte[]) one._2();
        if (m[0] == Message.REFUSED || m[0] == Message.TRUNCATION_POINT) return one;
        byte[] named = new Bytes(k.length + tag.length).put(k[0]).put(tag).put(k, 1, k.length).array();
        boolean whole = picks != null && m.length > Message.ROW;
        return new Tuple2<byte[], byte[]>(named, whole ? picked(m, picks, at) : m);
      }
    };
  }

  private static byte[] picked(byte[] message, int[] picks, int[] at) {
    int values = Message.textAt(message, Message.ROW);
    Texts.find(message, values, at);
    byte[] picked = Texts.picked(message, at, picks, values);
    System.arraycopy(message, 0, picked, 0, values);
    return picked;
  }
}
