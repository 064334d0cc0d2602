package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * Merges the changes of each group's rows, and emits a group whose result changed: `joins.steps.aggregate`. State per
 * group: its sums and bags; a bag's pages are entries of their own.
 */
public final class Aggregate extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private transient Group group;
  private transient ValueState<byte[]> groups;
  private transient MapState<byte[], byte[]> pages;

  public Aggregate(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Aggregate(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    group = Group.of(program);
    groups = getHandle().getValueState("group_v1", Encoders.BINARY(), TTLConfig.NONE());
    pages = getHandle().getMapState("pages_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object at, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] k = (byte[]) at;
    List<Object> out = new ArrayList<Object>(2);
    if (k[0] < 0) { // a notice
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    byte[] key = Arrays.copyOfRange(k, 1, k.length);
    Partial partial = new Partial(group, key);
    while (input.hasNext()) partial.merge((byte[]) ((Tuple2) input.next())._2());
    changed(key, partial, out);
    return Message.asScala(out.iterator());
  }

  private void changed(byte[] key, Partial partial, Collection<Object> out) {
    byte[] stored = (byte[]) groups.get();
    Held held = new Held(group, stored, pages);
    boolean whole = group.windows == null; // with windows, only the rows that differ are looked at
    Windows.Computed former = whole ? null : stored == null ? group.windows.nothing() : held.computed(key, null);
    Map<Object, byte[]> before = new LinkedHashMap<Object, byte[]>(), rows = new LinkedHashMap<Object, byte[]>();
    if (whole && stored != null) before = held.rows(key, null);
    if (!held.add(partial)) throw fault(key);
    boolean there = held.rows > 0 || group.always != null;
    byte[] packed = there ? held.packed() : null;
    if (packed == null && stored != null) groups.clear();
    else if (!Arrays.equals(packed, stored)) groups.update(packed);
    List<Object> letters = new ArrayList<Object>(0);
    if (whole && there) rows = held.rows(key, letters);
    if (!whole) {
      Windows.Computed now = there ? held.computed(key, letters) : group.windows.nothing();
      group.windows.differences(key, former, now, before, rows);
    }
    int sizeBefore = out.size();
    byte[] shown = Message.traced(held.trace, Message.counted(group.number, held.rows));
    for (Iterator<?> each = before.keySet().iterator(); each.hasNext(); ) {
      Object name = each.next();
      if (!rows.containsKey(name)) out.add(Message.result(group.target, ((ByteBuffer) name).array(), null, 0));
    }
    for (Iterator<?> each = rows.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry one = (Map.Entry) each.next();
      byte[] row = (byte[]) one.getValue();
      if (Arrays.equals((byte[]) before.get(one.getKey()), row)) continue;
      byte[] payload = new Bytes(64 + row.length).putLong(held.ts).put(shown).put(row).array();
      out.add(Message.result(group.target, ((ByteBuffer) one.getKey()).array(), payload, 1));
    }
    if (out.size() > sizeBefore) out.addAll(letters);
  }

  private IllegalStateException fault(byte[] key) {
    String remedy = "run with `--rebuild " + group.table + "` to count them again, and please report this";
    return new IllegalStateException(group.named(key) + " has lost more rows than it had: " + remedy);
  }

  /** The stored content of one group. */
  private static final class Held {
    long rows, ts;
    byte[] trace = Message.NONE; // of the newest change; groups stored before traces existed have none
    private final Group group;
    private final Sum[] sums;
    private final Bag[] bags;

    Held(Group group, byte[] stored, MapState<byte[], byte[]> pages) {
      this.group = group;
      sums = group.sums();
      bags = new Bag[group.bags.length];
      for (int i = 0; i < bags.length; i++) bags[i] = new Bag(i, group.tally(i), pages);
      if (stored == null) return;
      ByteBuffer from = ByteBuffer.wrap(stored);
      ts = from.getLong();
      rows = Bytes.count(from);
      for (int i = 0; i < sums.length; i++) sums[i].read(from);
      for (int i = 0; i < bags.length; i++) bags[i].read(from);
      if (from.hasRemaining()) trace = Bytes.block(from);
    }

    byte[] packed() {
      Bytes out = new Bytes(64).putLong(ts).putCount(rows);
      for (int i = 0; i < sums.length; i++) sums[i].write(out);
      for (int i = 0; i < bags.length; i++) bags[i].write(out);
      if (trace.length > 0) out.putBlock(trace);
      return out.array();
    }

    /** Applies a change; false if a count would fall below 0. */
    boolean add(Partial partial) {
      boolean newer = partial.ts > ts || partial.ts == ts && Arrays.compareUnsigned(partial.trace, trace) > 0;
      if (newer) trace = partial.trace;
      ts = Math.max(ts, partial.ts);
      rows += partial.rows;
      boolean sound = rows >= 0;
      for (int i = 0; i < sums.length; i++) {
        sums[i].add(partial.sums[i]);
        sound &= sums[i].count >= 0 && (rows > 0 || sums[i].count == 0);
      }
      for (int i = 0; i < bags.length && sound; i++) {
        sound = bags[i].change(partial.sorted(i)) && (rows > 0 || bags[i].tally.distinct == 0);
      }
      return sound;
    }

    Windows.Computed computed(byte[] key, Collection<Object> letters) {
      return group.windows.computed(key, bags[0], group, letters);
    }

    /** Its texts by name: its one row, or its first rows. */
    Map<Object, byte[]> rows(byte[] key, Collection<Object> letters) {
      if (group.top != null) return group.top.rows(key, bags[0]);
      return Collections.singletonMap((Object) ByteBuffer.wrap(key), row(key, letters));
    }

    /** The values of its row; adds a dead letter for each that does not fit its type. */
    private byte[] row(byte[] key, Collection<Object> letters) {
      Bytes out = new Bytes(64);
      if (group.keys.length > 0) out.put(key);
      for (int i = 0; i < group.results.length; i++) {
        if (out.length > 0) out.put(',');
        byte[] value = group.results[i].of(rows, sums, bags);
        out.put(value == Result.REFUSED ? Envelope.NULL : value);
        if (value == Result.REFUSED && letters != null) letters.add(group.letter(key, group.results[i]));
      }
      return out.array();
    }
  }
}
