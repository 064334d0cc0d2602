package tailorbird.kernel;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.util.List;
import org.apache.spark.TaskContext;

/**
 * The watermark of the batch that a task works on. Spark gives it to its own operators only, but writes it down before
 * the batch begins, beside the batch's offsets; a replay of the batch finds the same one there.
 */
final class Watermark {
  private static final String BATCH = "streaming.sql.batchId";

  private Watermark() {}

  /** In milliseconds since 1970; `checkpoint` is the query's folder. */
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

  /** As a canonical datetime. */
  static String text(long millis) {
    String text = Instant.ofEpochMilli(millis).toString();
    return text.indexOf('.') < 0 ? text : text.replaceAll("0*Z$", "Z");
  }
}
