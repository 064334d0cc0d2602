package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.spark.TaskContext;

/**
 * What `now()` means in the current batch. The driver stores it before the batch begins
 * (`joins.engine.file_checkpoint`). A replay of the batch finds the same value there, and no batch an earlier one.
 */
final class BatchClock {
  private static final String BATCH = "streaming.sql.batchId";

  private BatchClock() {}

  /** The clock in milliseconds since 1970; `checkpoint` is the query's folder. */
  static long ofThisBatch(String checkpoint) {
    String batch = TaskContext.get().getLocalProperty(BATCH);
    if (batch == null) throw new IllegalStateException("conditions on the time outside of a streaming query's batch");
    java.nio.file.Path file = Paths.get(checkpoint, new String[] {"clock"});
    try {
      JsonNode clocks = Message.parsed(new String(Files.readAllBytes(file), StandardCharsets.UTF_8));
      JsonNode found = Message.at(clocks, batch);
      if (found == null) throw new IllegalStateException(file + " lacks batch " + batch);
      return found.asLong();
    } catch (IOException e) {
      throw new IllegalStateException(file + ": " + e, e);
    }
  }
}
