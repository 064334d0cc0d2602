import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import io.debezium.connector.mysql.Module;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.ByteArrayOutputStream;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.zip.CRC32;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * The reader of Debezium's embedded engine: SourceRecords with both images as Connect structs, no JSON converter.
 * Its arguments and its one line of output are those of reading.py.
 */
public final class DecodeBench implements DebeziumEngine.ChangeConsumer<RecordChangeEvent<SourceRecord>> {
    private static final String[] COLUMNS = {
        "id", "qty", "price", "ratio", "name", "note", "made", "touched", "due", "attrs", "kind", "token"
    };
    private static final int WEIGHTS = 65521;
    private static final int DEFAULT_BATCH = 2048;
    private static final String NAME = "decode";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final CountDownLatch finished = new CountDownLatch(1);
    private final int wanted;
    private final boolean check;
    private final long[][] sums = new long[2][COLUMNS.length];
    private final CRC32 crc = new CRC32();
    private int inserts;
    private int updates;
    private int deletes;
    private long began;
    private double seconds;
    private long used;
    private double cpu;
    private volatile Throwable failure;

    private DecodeBench(int wanted, boolean check) {
        this.wanted = wanted;
        this.check = check;
    }

    /** The place in the binlog where the measured changes begin, as if an earlier run had stored it. */
    public static final class StoredPlace extends MemoryOffsetBackingStore {
        private static String place;

        @Override
        public void configure(WorkerConfig config) {
            super.configure(config);
            String key = "[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]";
            data.put(bytes(key), bytes(place));
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of(Map.of("server", NAME));
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    @Override
    public void handleBatch(
            List<RecordChangeEvent<SourceRecord>> records,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        for (RecordChangeEvent<SourceRecord> record : records) {
            take((Struct) record.record().value());
            committer.markProcessed(record);
        }
        committer.markBatchFinished();
    }

    private void take(Struct value) {
        int count = inserts + updates + deletes;
        if (count >= wanted) {
            return;
        }
        if (began == 0) {
            began = System.nanoTime();
            used = SYSTEM.getProcessCpuTime();
        }
        switch (value.getString("op")) {
            case "c" -> inserts++;
            case "u" -> updates++;
            case "d" -> deletes++;
            default -> throw new IllegalStateException("op " + value.getString("op"));
        }
        if (check) {
            long weight = 1 + count % WEIGHTS;
            add(value.getStruct("before"), sums[0], weight);
            add(value.getStruct("after"), sums[1], weight);
        }
        if (count + 1 == wanted) {
            seconds = (System.nanoTime() - began) / 1e9;
            cpu = (SYSTEM.getProcessCpuTime() - used) / 1e9;
            finished.countDown();
        }
    }

    private void add(Struct row, long[] sums, long weight) {
        if (row == null) {
            return;
        }
        for (int index = 0; index < COLUMNS.length; index++) {
            crc.reset();
            crc.update(text(COLUMNS[index], row.get(COLUMNS[index])));
            sums[index] += crc.getValue() * weight;
        }
    }

    private static byte[] text(String column, Object value) {
        if (value == null) {
            return new byte[1];
        }
        switch (column) {
            case "price":
                return utf8(((BigDecimal) value).toPlainString());
            case "ratio":
                return utf8(doubleText((Double) value));
            case "touched":
                return utf8(Long.toString(Instant.parse((String) value).getEpochSecond()));
            case "token":
                return ((ByteBuffer) value).array();
            case "attrs":
                try {
                    ByteArrayOutputStream to = new ByteArrayOutputStream();
                    document(JSON.readTree((String) value), to);
                    return to.toByteArray();
                } catch (java.io.IOException error) {
                    throw new IllegalStateException(error);
                }
            default:
                return utf8(value.toString());
        }
    }

    private static String doubleText(double value) {
        return String.format("%016x", Double.doubleToLongBits(value));
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void quoted(String text, ByteArrayOutputStream to) {
        byte[] raw = utf8(text);
        to.writeBytes(utf8("s" + raw.length + ":"));
        to.writeBytes(raw);
    }

    private static void document(JsonNode node, ByteArrayOutputStream to) {
        if (node.isObject()) {
            TreeMap<String, JsonNode> sorted = new TreeMap<>();
            node.properties().forEach(pair -> sorted.put(pair.getKey(), pair.getValue()));
            to.write('{');
            sorted.forEach((key, item) -> {
                quoted(key, to);
                document(item, to);
            });
            to.write('}');
        } else if (node.isArray()) {
            to.write('[');
            node.forEach(item -> document(item, to));
            to.write(']');
        } else if (node.isTextual()) {
            quoted(node.textValue(), to);
        } else if (node.isIntegralNumber()) {
            to.writeBytes(utf8("i" + node.asText()));
        } else if (node.isNumber()) {
            to.writeBytes(utf8("d" + doubleText(node.doubleValue())));
        } else {
            to.writeBytes(utf8(node.asText()));
        }
    }

    private static Properties properties(Map<String, String> given) {
        Properties properties = new Properties();
        Map<String, String> values = new HashMap<>();
        values.put("name", NAME);
        values.put("topic.prefix", NAME);
        values.put("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        values.put("database.hostname", "127.0.0.1");
        values.put("database.port", given.get("port"));
        values.put("database.user", given.get("user"));
        values.put("database.password", given.get("password"));
        values.put("database.server.id", "9503");
        // Every setting before the queue's that is not a default saves Debezium work that no other library does here:
        // encryption, offsets and schema history on disk, a snapshot, tombstones and events for DDL.
        values.put("database.ssl.mode", "disabled");
        values.put("table.include.list", "bench." + given.get("table"));
        values.put("offset.storage", StoredPlace.class.getName());
        values.put("offset.flush.interval.ms", "60000");
        values.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        values.put("snapshot.mode", "recovery");
        values.put("include.schema.changes", "false");
        values.put("tombstones.on.delete", "false");
        if (given.containsKey("queue")) {
            // batch, queue, milliseconds between polls; the defaults are 2048, 8192, 500
            String[] sizes = given.get("queue").split(",");
            values.put("max.batch.size", sizes[0]);
            values.put("max.queue.size", sizes[1]);
            values.put("poll.interval.ms", sizes[2]);
        }
        values.forEach(properties::setProperty);
        return properties;
    }

    private String answer() {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("version", Module.version());
        answer.put("inserts", inserts);
        answer.put("updates", updates);
        answer.put("deletes", deletes);
        answer.put("seconds", seconds);
        answer.put("cpu", cpu);
        Map<String, String[]> byColumn = new LinkedHashMap<>();
        for (int index = 0; index < COLUMNS.length; index++) {
            String[] sides = {String.format("%016x", sums[0][index]), String.format("%016x", sums[1][index])};
            byColumn.put(COLUMNS[index], sides);
        }
        answer.put("sums", check ? byColumn : null);
        try {
            return JSON.writeValueAsString(answer);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new HashMap<>();
        boolean check = false;
        for (int at = 0; at < arguments.length; at++) {
            if (arguments[at].equals("--check")) {
                check = true;
            } else {
                given.put(arguments[at].substring(2), arguments[++at]);
            }
        }
        StoredPlace.place = "{\"file\":\"" + given.get("file") + "\",\"pos\":" + given.get("position")
                + ",\"gtids\":\"" + given.get("gtids") + "\"}";
        int wanted = Integer.parseInt(given.get("changes"));
        int batch = given.containsKey("queue") ? Integer.parseInt(given.get("queue").split(",")[0]) : DEFAULT_BATCH;
        if (!check && wanted > batch) {
            // The last batch is not full and would arrive only after poll.interval.ms: that pause is not measured.
            wanted -= wanted % batch;
        }
        DecodeBench bench = new DecodeBench(wanted, check);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(properties(given))
                        .using((success, message, error) -> {
                            if (!success) {
                                bench.failure = error == null ? new IllegalStateException(message) : error;
                            }
                            bench.finished.countDown();
                        })
                        .notifying(bench)
                        .build();
        Thread reader = new Thread(engine, "engine");
        reader.start();
        bench.finished.await();
        if (bench.failure != null) {
            System.err.println(bench.failure);
            System.exit(1);
        }
        System.out.println(bench.answer());
        System.out.flush();
        // An orderly stop would only take time, because nothing is stored.
        Runtime.getRuntime().halt(0);
    }
}
