package tailorbird.kernel;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.*;

/**
 * Reads the records of a partition before a marker again from Kafka, in order. It uses reflection, because Kafka's
 * client comes with Spark's connector, which is not on the kernel's compile classpath.
 */
final class PartitionReader implements Iterator<Object[]> {
  private static final String CLIENTS = "org.apache.kafka.clients.consumer.", COMMON = "org.apache.kafka.common.";
  private static final long TIMEOUT_MS = 60000;
  private final String what;
  private final long end;
  private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
  private final Class<?> consumers, records;
  private final Object consumer, partition;
  private Iterator<?> polled = Collections.emptyIterator();
  private Object[] next;

  /** The records of a partition with offsets below `end`, as {offset, key, value}; `kafka`: a client's properties. */
  PartitionReader(Map<String, Object> kafka, String topic, int number, long end) throws ReflectiveOperationException {
    what = topic + ", partition " + number;
    this.end = end;
    Map<String, Object> settings = new HashMap<String, Object>(kafka);
    settings.put("isolation.level", "read_committed");
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest"); // retention may delete the beginning during the read
    settings.put("key.deserializer", Class.forName(COMMON + "serialization.ByteArrayDeserializer", true, loader));
    settings.put("value.deserializer", settings.get("key.deserializer"));
    consumers = Class.forName(CLIENTS + "KafkaConsumer", true, loader);
    records = Class.forName(CLIENTS + "ConsumerRecord", true, loader);
    Class<?> partitions = Class.forName(COMMON + "TopicPartition", true, loader);
    Object[] place = {topic, Integer.valueOf(number)};
    partition = partitions.getConstructor(new Class[] {String.class, int.class}).newInstance(place);
    consumer = consumers.getConstructor(new Class[] {Map.class}).newInstance(new Object[] {settings});
    Object all = Collections.singletonList(partition);
    call("assign", Collection.class, all);
    call("seekToBeginning", Collection.class, all);
  }

  public boolean hasNext() {
    try {
      long deadline = System.currentTimeMillis() + TIMEOUT_MS;
      while (next == null && (polled.hasNext() || poll(deadline))) {
        if (polled.hasNext()) take(polled.next());
      }
      return next != null;
    } catch (ReflectiveOperationException e) {
      Object why = e.getCause() == null ? e : e.getCause();
      throw new IllegalStateException(what + ": cannot be read again: " + why, e);
    }
  }

  /** Polls Kafka for more; false once all records before the marker were returned. */
  private boolean poll(long deadline) throws ReflectiveOperationException {
    if (((Long) call("position", partition.getClass(), partition)).longValue() >= end) return false;
    if (System.currentTimeMillis() > deadline) {
      String wanted = "the records before the marker at offset " + end;
      throw new IllegalStateException(what + ": Kafka does not return " + wanted + "; is it running?");
    }
    polled = ((Iterable<?>) call("poll", Duration.class, Duration.ofMillis(500))).iterator();
    return true;
  }

  private void take(Object record) throws ReflectiveOperationException {
    Long offset = (Long) field(record, "offset");
    if (offset.longValue() < end) next = new Object[] {offset, field(record, "key"), field(record, "value")};
  }

  public Object[] next() {
    if (!hasNext()) throw new NoSuchElementException();
    Object[] one = next;
    next = null;
    return one;
  }

  void close() throws ReflectiveOperationException {
    consumers.getMethod("close", new Class[0]).invoke(consumer, new Object[0]);
  }

  private Object call(String name, Class<?> type, Object argument) throws ReflectiveOperationException {
    Method method = consumers.getMethod(name, new Class[] {type});
    return method.invoke(consumer, new Object[] {argument});
  }

  private Object field(Object record, String name) throws ReflectiveOperationException {
    return records.getMethod(name, new Class[0]).invoke(record, new Object[0]);
  }
}
