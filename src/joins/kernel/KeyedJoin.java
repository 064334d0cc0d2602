package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * Joins the rows that point at a key with the row that has it, for every lookup join of a level:
 * `joins.steps.state.lookup_step`. State per key: the right side's payload together with the first few rows and their
 * payloads, which therefore need no search of the store. A row's payload is empty where an assembling step keeps it.
 * Once there are more rows, each is an entry of its own that is written without being read, so a key with very many
 * rows costs no more per change than any other. Only where a group needs what the row was, it is read first.
 */
public final class KeyedJoin extends StatefulProcessor<Object, Object, Object> {
  private static final int FEW = 320; // bytes: two or three rows of a common width, or a dozen ids of rows
  private static final int APART = -1; // replaces a row count: each row is an entry of its own
  private static final long FROM_RIGHT = 1, FROM_ROW = 2; // version increments: the row itself beats its right side
  private final String program;
  private transient Lookup[] lookups;
  private transient ValueState<byte[]> keys;
  private transient MapState<byte[], byte[]> rows;

  public KeyedJoin(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new KeyedJoin(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    lookups = new Lookup[128];
    JsonNode described = Message.at(Message.parsed(program), "lookups");
    for (int i = 0; i < described.size(); i++) {
      JsonNode lookup = Message.at(described, Integer.valueOf(i));
      lookups[Message.at(lookup, "lookup").asInt()] = new Lookup(lookup);
    }
    keys = getHandle().getValueState("key_v1", Encoders.BINARY(), TTLConfig.NONE());
    rows = getHandle().getMapState("rows_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group;
    ArrayDeque<Object> out = new ArrayDeque<Object>();
    Lookup lookup = key[0] < 0 ? null : lookups[key[0]];
    if (lookup == null) { // for a later step: a multi-way join, or a lookup of another level
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    Batch batch = new Batch(input);
    if (batch.right == null && batch.newest.isEmpty()) return Message.asScala(out.iterator());
    // NULL matches nothing: its row has a key of its own, and no state unless the row must be known later
    boolean matches = key.length < 2 || key[1] != 0, stored = matches || lookup.retracts && !lookup.inner;
    Held held = new Held(stored ? (byte[]) keys.get() : null);
    byte[] before = held.right, newer = batch.right == null ? before : Message.payload(batch.right);
    boolean changed = batch.right != null && differs(newer, before);
    if (changed) held.right = newer; // otherwise newer at most, with the same values
    boolean some = false; // whether a row was put here, so that the key is not empty
    for (Iterator<?> changes = batch.newest.entrySet().iterator(); changes.hasNext(); ) {
      Map.Entry change = (Map.Entry) changes.next();
      boolean sure = batch.sure != null && batch.sure.contains(change.getKey());
      if (lookup.retracts) some |= replace(lookup, change, held, before, out);
      else some |= change(lookup, change, held, matches ? before : null, sure, out);
    }
    if (stored && (changed || held.few != null || held.right.length == 0)) store(held, some);
    return changed ? othersToo(lookup, batch, held, before, out) : Message.asScala(out.iterator());
  }

  /** Whether the right side's values changed; its time and trace do not count. */
  private static boolean differs(byte[] newer, byte[] before) {
    if ((before.length == 0) != (newer.length == 0)) return true;
    int from = Message.textAt(newer, 0), begins = Message.textAt(before, 0);
    return newer.length > 0 && !Arrays.equals(newer, from, newer.length, before, begins, before.length);
  }

  /**
   * Stores or removes one row of the batch and emits it. Returns whether it was put. `before` is the right side before
   * the batch, null where the key matches nothing. `sure`: the row may be visible although no message to this key made
   * it so.
   */
  private boolean change(
      Lookup lookup, Map.Entry change, Held held, byte[] before, boolean sure, Collection<Object> out) {
    byte[] row = ((ByteBuffer) change.getKey()).array(), message = (byte[]) change.getValue();
    byte[] own = Message.payload(message);
    boolean put = puts(message);
    boolean shown = sure || message[0] != Message.NEW;
    // only what an inner join hides needs to be known before it is written: a row that was here without a right side
    // was not shown
    if (!sure && before != null && lookup.inner && lookup.multiJoin < 0 && (put ? held.right : before).length == 0) {
      boolean here = held.few == null ? rows.containsKey(row) : held.few.containsKey(change.getKey());
      if (here) shown = before.length > 0;
    }
    if (put) put(held, change.getKey(), row, lookup.multiJoin < 0 ? own : Message.NONE);
    else remove(held, change.getKey(), row);
    long version = Message.version(message) + FROM_ROW;
    if (put) lookup.row(row, own, held.right, version, shown, out);
    else if ((message[0] == Message.GONE || message[0] == Message.LOST) && shown) lookup.gone(row, version, out);
    return put;
  }

  private static boolean puts(byte[] message) {
    return message[0] == Message.PUT || message[0] == Message.NEW || message[0] == Message.SURE;
  }

  /** Stores or removes one row of the batch, and emits it as it was and as it is. Returns whether it was put. */
  private boolean replace(Lookup lookup, Map.Entry change, Held held, byte[] before, Collection<Object> out) {
    byte[] row = ((ByteBuffer) change.getKey()).array(), message = (byte[]) change.getValue();
    byte[] own = Message.payload(message), old;
    Tuple2 few = held.few == null ? null : (Tuple2) held.few.get(change.getKey());
    if (held.few == null) old = (byte[]) rows.getValue(row);
    else old = few == null ? null : (byte[]) few._2();
    boolean put = puts(message);
    if (put) put(held, change.getKey(), row, own);
    else if (old != null) remove(held, change.getKey(), row);
    byte[] was = lookup.joined(old, before), now = put ? lookup.joined(own, held.right) : null;
    Message.retraction(lookup.target, row, was, now, put ? Message.NONE : own, out);
    return put;
  }

  private void put(Held held, Object id, byte[] row, byte[] kept) {
    if (held.few == null) rows.updateValue(row, kept);
    else held.few.put(id, new Tuple2<byte[], byte[]>(row, kept));
  }

  private void remove(Held held, Object id, byte[] row) {
    if (held.few != null) {
      held.few.remove(id);
      return;
    }
    rows.removeKey(row);
    held.left--;
  }

  /** The messages in `out`, then one for every other row at the key. They are produced lazily to limit memory. */
  private scala.collection.Iterator<Object> othersToo(
      final Lookup lookup, final Batch batch, Held held, final byte[] before, final ArrayDeque<Object> out) {
    final byte[] right = held.right;
    final scala.collection.Iterator<Object> listed =
        held.few == null ? (scala.collection.Iterator) rows.iterator() : Message.asScala(held.few.values().iterator());
    return Message.asScala(new Iterator<Object>() {
      public boolean hasNext() {
        while (out.isEmpty() && listed.hasNext()) {
          Tuple2 entry = (Tuple2) listed.next();
          byte[] row = (byte[]) entry._1();
          if (batch.newest.containsKey(ByteBuffer.wrap(row))) continue;
          byte[] own = (byte[]) entry._2();
          if (lookup.multiJoin >= 0) out.add(lookup.part(row, right, FROM_RIGHT));
          else if (!lookup.retracts) lookup.row(row, own, right, FROM_RIGHT, true, out);
          else {
            byte[] was = lookup.joined(own, before), now = lookup.joined(own, right);
            Message.retraction(lookup.target, row, was, now, Message.NONE, out);
          }
        }
        return !out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return out.poll();
      }
    });
  }

  /** Stores a key's content, or removes the key with its last row. `some`: the key has a row that was just put. */
  private void store(Held held, boolean some) {
    List<Object> parts = new ArrayList<Object>(Collections.singleton(held.right));
    int size = 0;
    Iterator<?> few = held.few == null ? Collections.emptyIterator() : held.few.values().iterator();
    while (few.hasNext()) {
      Tuple2 one = (Tuple2) few.next();
      parts.add(one._1());
      parts.add(one._2());
      size += 8 + ((byte[]) one._1()).length + ((byte[]) one._2()).length;
    }
    boolean apart = held.few == null || size > FEW, bare = held.right.length == 0;
    for (int i = 1; size > FEW && i < parts.size(); i += 2) {
      rows.updateValue((byte[]) parts.get(i), (byte[]) parts.get(i + 1));
      held.left++;
    }
    if (bare && held.few == null && held.left <= 0 && !some) held.left = counted();
    if (bare && (held.few == null ? held.left <= 0 && !some : held.few.isEmpty())) {
      keys.clear();
      return;
    }
    byte[] packed = Message.packed(apart ? new byte[][] {held.right} : (byte[][]) parts.toArray(new byte[0][]));
    ByteBuffer stored = ByteBuffer.allocate(1 + packed.length + (apart && bare ? 4 : 0));
    stored.put((byte) (apart ? APART : held.few.size())).put(packed);
    if (apart && bare) stored.putInt(Math.max(0, held.left));
    keys.update(stored.array());
  }

  /**
   * Counts the rows that are entries of their own. It reads to the end, because Spark keeps an unfinished iterator
   * open until the task ends. A key without a right side must know when its last row is removed, and would otherwise
   * leave an open iterator in every batch. It counts again only after as many rows were removed as there were, so the
   * amortized cost per change is constant.
   */
  private int counted() {
    int count = 0;
    for (scala.collection.Iterator<?> all = rows.iterator(); all.hasNext(); all.next()) count++;
    return count;
  }

  /** A batch's messages for one key: the newest right side, and the newest message of each row. */
  private static final class Batch {
    byte[] right;
    final Map<Object, byte[]> newest = new HashMap<Object, byte[]>();
    Set<Object> sure; // rows that may be visible although no message to this key made them so; null: none

    Batch(scala.collection.Iterator<Object> input) {
      while (input.hasNext()) {
        byte[] message = (byte[]) ((Tuple2) input.next())._2();
        if (message[0] > Message.DIM_GONE) add(message);
        else if (right == null || Message.newer(message, right)) right = message;
      }
    }

    private void add(byte[] message) {
      Object row = ByteBuffer.wrap(Message.row(message));
      byte[] other = (byte[]) newest.get(row);
      byte[] last = other == null || Message.version(message) >= Message.version(other) ? message : other;
      if (other != null && last[0] == Message.NEW) last[0] = Message.PUT; // the row may be visible
      if (message[0] == Message.SURE || message[0] == Message.LOST) {
        if (sure == null) sure = new HashSet<Object>();
        sure.add(row);
      }
      newest.put(row, last);
    }
  }

  /** The stored content of one key: its right side and its rows; `few` is null where rows are entries of their own. */
  private static final class Held {
    byte[] right = Message.NONE;
    Map<Object, Object> few;
    int left; // lower bound for the number of entries, for a key without a right side

    Held(byte[] stored) {
      int count = stored == null ? 0 : (int) stored[0];
      if (count != APART) few = new LinkedHashMap<Object, Object>();
      if (stored == null) return;
      ByteBuffer packed = ByteBuffer.wrap(stored, 1, stored.length - 1);
      byte[][] parts = Message.unpacked(packed, 1 + 2 * Math.max(0, count));
      right = parts[0];
      for (int i = 1; i < parts.length; i += 2) {
        few.put(ByteBuffer.wrap(parts[i]), new Tuple2<byte[], byte[]>(parts[i], parts[i + 1]));
      }
      if (count == APART && packed.hasRemaining()) left = packed.getInt();
    }
  }

  /** One lookup join of the program, and the messages that leave it. */
  private static final class Lookup {
    final int multiJoin, part, target;
    final boolean inner, retracts; // the latter: a group receives each row as it was and as it is
    final byte[] nulls;

    Lookup(JsonNode lookup) {
      multiJoin = Message.at(lookup, "multi_join").asInt(); // the step that assembles its parts; -1: whole rows leave
      part = Message.at(lookup, "part").asInt();
      target = Message.at(lookup, "target").asInt();
      inner = Message.at(lookup, "inner").asBoolean();
      nulls = Message.nulls(Message.at(lookup, "width").asInt());
      retracts = multiJoin < 0 && Message.at(lookup, "retracts") != null;
    }

    /** A row with its right side; null if there is no such row, or an inner join hides it. */
    byte[] joined(byte[] own, byte[] right) {
      return own == null || inner && right.length == 0 ? null : Message.joined(own, right, nulls);
    }

    /** Emits a row of the batch, or one at a key whose right side changed. */
    void row(byte[] row, byte[] own, byte[] right, long version, boolean shown, Collection<Object> out) {
      if (multiJoin >= 0 && part > 0) out.add(part(row, right, version));
      else if (multiJoin >= 0) {
        byte[] both = ByteBuffer.allocate(4 + own.length + right.length).putInt(own.length).put(own).put(right).array();
        out.add(Message.of(Message.MULTI_JOIN | multiJoin, row, Message.PUT, version, Message.NONE, both));
      } else if (right.length > 0 || !inner) {
        out.add(Message.result(target, row, Message.joined(own, right, nulls), version));
      } else if (shown) out.add(Message.result(target, row, null, 0));
    }

    Tuple2<byte[], byte[]> part(byte[] row, byte[] right, long version) {
      return Message.of(Message.MULTI_JOIN | multiJoin, row, Message.PART, version, new byte[] {(byte) part}, right);
    }

    void gone(byte[] row, long version, Collection<Object> out) {
      if (multiJoin < 0) out.add(Message.result(target, row, null, 0));
      else if (part == 0) {
        out.add(Message.of(Message.MULTI_JOIN | multiJoin, row, Message.GONE, version, Message.NONE, Message.NONE));
      }
    }
  }
}
