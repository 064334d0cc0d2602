package tailorbird.kernel;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's source for Kafka, with a limit per batch that follows the {@link Pace} of the query. Spark's own
 * `maxOffsetsPerTrigger` never changes while a query runs.
 *
 * <p>Options: those of `kafka`; `pace`, the query's name; `share`, the number of sources that divide the limit.
 * Checkpoints are those of `kafka`.
 */
public final class PacedKafka implements TableProvider {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  private final TableProvider kafka;

  public PacedKafka() throws ReflectiveOperationException {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    Class<?> provider = Class.forName(KAFKA, true, loader == null ? PacedKafka.class.getClassLoader() : loader);
    kafka = (TableProvider) provider.getDeclaredConstructor().newInstance();
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Log((SupportsRead) kafka.getTable(schema, partitioning, properties));
  }

  private static final class Log implements SupportsRead {
    private final SupportsRead table;

    Log(SupportsRead table) {
      this.table = table;
    }

    @Override
    public String name() {
      return table.name();
    }

    @Override
    public StructType schema() {
      return table.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return table.capabilities();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Builder(table.newScanBuilder(options), options);
    }
  }

  private static final class Builder implements ScanBuilder {
    private final ScanBuilder builder;
    private final CaseInsensitiveStringMap options;

    Builder(ScanBuilder builder, CaseInsensitiveStringMap options) {
      this.builder = builder;
      this.options = options;
    }

    @Override
    public Scan build() {
      return new PacedScan(builder.build(), Pace.of(options.get("pace")), options.getInt("share", 1));
    }
  }

  private static final class PacedScan implements Scan {
    private final Scan scan;
    private final Pace pace;
    private final int share;

    PacedScan(Scan scan, Pace pace, int share) {
      this.scan = scan;
      this.pace = pace;
      this.share = share;
    }

    @Override
    public StructType readSchema() {
      return scan.readSchema();
    }

    @Override
    public String description() {
      return scan.description();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new Stream(scan.toMicroBatchStream(checkpoint), pace, share);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return scan.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return scan.reportDriverMetrics();
    }
  }

  private static final class Stream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private final MicroBatchStream stream;
    private final SupportsTriggerAvailableNow admission;
    private final Pace pace;
    private final int share;

    Stream(MicroBatchStream stream, Pace pace, int share) {
      this.stream = stream;
      this.admission = (SupportsTriggerAvailableNow) stream;
      this.pace = pace;
      this.share = share;
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
      return ReadLimit.maxRows(Math.max(1, pace.limit() / share));
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      // Spark asks for the default limit only once
      Offset end = admission.latestOffset(start, limit instanceof ReadMaxRows ? getDefaultReadLimit() : limit);
      Offset newest = admission.reportLatestOffset();
      if (end != null && newest != null && !end.json().equals(newest.json())) pace.reached();
      return end;
    }

    @Override
    public Offset reportLatestOffset() {
      return admission.reportLatestOffset();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
      admission.prepareForTriggerAvailableNow();
    }

    @Override
    public Offset latestOffset() {
      return stream.latestOffset();
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return stream.planInputPartitions(start, end);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return stream.createReaderFactory();
    }

    @Override
    public Offset initialOffset() {
      return stream.initialOffset();
    }

    @Override
    public Offset deserializeOffset(String json) {
      return stream.deserializeOffset(json);
    }

    @Override
    public void commit(Offset end) {
      stream.commit(end);
    }

    @Override
    public void stop() {
      stream.stop();
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latest) {
      return ((ReportsSourceMetrics) stream).metrics(latest);
    }

    @Override
    public String toString() {
      return stream.toString();
    }
  }
}
