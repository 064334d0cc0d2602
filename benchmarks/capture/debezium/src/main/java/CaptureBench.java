import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Debezium's embedded engine, its records sent to Kafka with acks=all: a batch is marked as processed once the brokers
 * have all of it, as Debezium Server does. Runs until it is killed.
 */
public final class CaptureBench implements DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> {
    private static final String NAME = "debezium";

    private final KafkaProducer<byte[], byte[]> producer;

    private CaptureBench(String brokers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("acks", "all");
        settings.put("compression.type", "lz4");
        settings.put("linger.ms", "5");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        producer = new KafkaProducer<>(settings);
    }

    /** The place in the binlog where the measured changes begin, as if an earlier run had stored it. */
    public static final class StoredPlace extends MemoryOffsetBackingStore {
        private static String place;

        @Override
        public void configure(WorkerConfig config) {
            super.configure(config);
            if (place != null) {
                data.put(bytes("[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]"), bytes(place));
            }
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of(Map.of("server", NAME));
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(utf8(text));
        }
    }

    @Override
    public void handleBatch(
            List<ChangeEvent<String, String>> records,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
            throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>(records.size());
        for (ChangeEvent<String, String> record : records) {
            sent.add(producer.send(
                    new ProducerRecord<>(record.destination(), utf8(record.key()), utf8(record.value()))));
        }
        producer.flush();
        try {
            for (int at = 0; at < sent.size(); at++) {
                sent.get(at).get();
                committer.markProcessed(records.get(at));
            }
        } catch (java.util.concurrent.ExecutionException error) {
            throw new IllegalStateException(error);
        }
        committer.markBatchFinished();
    }

    private static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static Properties properties(Map<String, String> given) {
        Map<String, String> values = new HashMap<>();
        values.put("name", NAME);
        values.put("topic.prefix", NAME);
        values.put("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        values.put("database.hostname", "127.0.0.1");
        values.put("database.port", given.get("port"));
        values.put("database.user", given.get("user"));
        values.put("database.password", given.get("password"));
        values.put("database.server.id", "9504");
        values.put("database.ssl.mode", "disabled");
        values.put("table.include.list", "bench." + given.get("table"));
        values.put("snapshot.mode", given.containsKey("file") ? "recovery" : "initial_only");
        // offsets and schema history stay in memory, which saves disk writes
        values.put("offset.storage", StoredPlace.class.getName());
        values.put("offset.flush.interval.ms", "60000");
        values.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        values.put("include.schema.changes", "false");
        // the same values as Tailorbird's, without inline schemas
        values.put("converter.schemas.enable", "false");
        values.put("decimal.handling.mode", "string");
        values.put("time.precision.mode", "isostring");
        values.put("binary.handling.mode", "base64");
        values.put("provide.transaction.metadata", "false");
        // any other setting, such as --set.snapshot.mode initial
        given.forEach((name, value) -> {
            if (name.startsWith("set.")) {
                values.put(name.substring("set.".length()), value);
            }
        });
        Properties properties = new Properties();
        values.forEach(properties::setProperty);
        return properties;
    }

    public static void main(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (int at = 0; at < arguments.length; at += 2) {
            given.put(arguments[at].substring(2), arguments[at + 1]);
        }
        if (given.containsKey("file")) {
            StoredPlace.place = "{\"file\":\"" + given.get("file") + "\",\"pos\":" + given.get("position")
                    + ",\"gtids\":\"" + given.get("gtids") + "\"}";
        }
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties(given))
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(error == null ? message : error);
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying(new CaptureBench(given.get("brokers")))
                .build();
        engine.run();
    }
}
