package tailorbird.kernel;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.util.List;
import org.apache.spark.TaskContext;

/**
 * The watermark of the current batch. Spark gives it only to its own operators, but writes it to the offset log before
 * the batch begins. A replay of the batch finds the same value there.
 */
final class Watermark {
  private static final String BATCH = "streaming.sql.batchId";

  private Watermark() {}

  /** The watermark in milliseconds since 1970; `checkpoint` is the query's folder. */
  static long ofThisBatch(String checkpoint) {
    String batch = TaskContext.get().getLocalProperty(BATCH);
    if (batch == null) throw new IllegalStateException("a join by time is no part of a streaming query's batch");
    java.nio.file.Path file = Paths.get(checkpoint, new String[] {"offsets", batch});
    try {
      List<String> lines = Files.readAllLines(file); // a version, the batch's metadata, then a line per source
      return Message.at(Message.parsed((String) lines.get(1)), "batchWatermarkMs").asLong();
    } catch (IOException e) {
      throw new IllegalStateException(file + ": " + e, e);
    }
  }

  /** The watermark as a canonical datetime. */
  static String text(long millis) {
    String text = Instant.ofEpochMilli(millis).toString();
    return text.indexOf('.') < 0 ? text : text.replaceAll("0*Z$", "Z");
  }
}
