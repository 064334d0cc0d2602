package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * Joins rows of two sides at a key, many to many: `joins.steps.pairs`. State per key: the number of rows of each side
 * together with the first few of them. Once there are more, each is an entry of its own. Results are produced lazily
 * from the store, so memory does not grow with the number of matching rows.
 */
public final class Pairs extends StatefulProcessor<Object, Object, Object> {
  private static final int FEW = 640; // bytes: two or three rows of a common width on each side
  private final String program;
  private transient Pairing pairing;
  private transient ValueState<byte[]> keys;
  private transient MapState<byte[], byte[]> left, right; // by id

  public Pairs(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Pairs(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    pairing = new Pairing(Message.at(Message.parsed(program), "pairs"));
    keys = getHandle().getValueState("pair_v1", Encoders.BINARY(), TTLConfig.NONE());
    left = getHandle().getMapState("left_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
    right = getHandle().getMapState("right_v1", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group;
    ArrayDeque<Object> out = new ArrayDeque<Object>();
    if (key[0] != pairing.number) { // a notice, or a row that matched nothing
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    Met[] met = {new Met(), new Met()};
    while (input.hasNext()) {
      byte[] message = (byte[]) ((Tuple2) input.next())._2(), row = Message.row(message);
      met[row[0]].changes.put(ByteBuffer.wrap(Arrays.copyOfRange(row, 1, row.length)), message);
    }
    read(met);
    long pairs = met[0].after() * met[1].after();
    if (pairs > pairing.most) throw pairing.fault(key, pairs);
    keep(met);
    pairing.withoutRows(met, out);
    return Message.asScala(new Listing(met, out));
  }

  private MapState<byte[], byte[]> rows(int side) {
    return side == 0 ? left : right;
  }

  /** Reads the stored content of a key: the number of its rows, and the rows while they are few. */
  private void read(Met[] met) {
    byte[] stored = (byte[]) keys.get();
    ByteBuffer from = stored == null ? null : ByteBuffer.wrap(stored);
    boolean apart = stored != null && from.get() != 0;
    for (int side = 0; side < 2; side++) {
      Met one = met[side];
      if (stored != null) one.before = Bytes.count(from);
      one.few = apart ? null : new LinkedHashMap<Object, Object>();
      for (long i = 0; !apart && i < one.before; i++) {
        one.few.put(ByteBuffer.wrap(Bytes.block(from)), Bytes.block(from));
      }
    }
  }

  /** Stores the batch's changes, or removes the key with its last row. */
  private void keep(Met[] met) {
    int size = 0;
    boolean apart = met[0].few == null;
    for (int side = 0; side < 2; side++) {
      for (Iterator<?> each = met[side].changes.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry change = (Map.Entry) each.next();
        byte[] message = (byte[]) change.getValue(), name = ((ByteBuffer) change.getKey()).array();
        boolean gone = message[0] == Message.GONE;
        if (apart && gone) rows(side).removeKey(name);
        else if (apart) rows(side).updateValue(name, Message.payload(message));
        else if (gone) met[side].few.remove(change.getKey());
        else met[side].few.put(change.getKey(), Message.payload(message));
      }
      size += apart ? 0 : met[side].size();
    }
    if (met[0].after() == 0 && met[1].after() == 0) {
      keys.clear();
      return;
    }
    boolean few = !apart && size <= FEW;
    Bytes stored = new Bytes(16 + (few ? size : 0)).put(few ? 0 : 1);
    for (int side = 0; side < 2; side++) {
      stored.putCount(met[side].after());
      Iterator<?> each = apart ? Collections.emptyIterator() : met[side].few.entrySet().iterator();
      while (each.hasNext()) {
        Map.Entry row = (Map.Entry) each.next();
        byte[] name = ((ByteBuffer) row.getKey()).array(), payload = (byte[]) row.getValue();
        if (few) stored.putBlock(name).putBlock(payload);
        else rows(side).updateValue(name, payload);
      }
    }
    keys.update(stored.array());
  }

  /** The messages in `out`, then those of each row whose partners changed, one side after the other. */
  private final class Listing implements Iterator<Object> {
    private final Met[] met;
    private final ArrayDeque<Object> out;
    private final scala.collection.Iterator[] listed = new scala.collection.Iterator[2];
    private int side;

    Listing(Met[] met, ArrayDeque<Object> out) {
      this.met = met;
      this.out = out;
      for (int i = 0; i < 2; i++) { // opened here, since Spark knows the key only until this returns
        boolean none = met[1 - i].changes.isEmpty() || met[i].after() == 0;
        if (none) listed[i] = Message.asScala(Collections.emptyIterator());
        else if (met[i].few != null) listed[i] = met[i].held();
        else listed[i] = rows(i).iterator();
      }
    }

    public boolean hasNext() {
      while (out.isEmpty() && side < 2) {
        if (!listed[side].hasNext()) side++;
        else {
          Tuple2 row = (Tuple2) listed[side].next();
          byte[] name = (byte[]) row._1(), payload = (byte[]) row._2();
          pairing.row(side, name, payload, met, out);
        }
      }
      return !out.isEmpty();
    }

    public Object next() {
      if (!hasNext()) throw new NoSuchElementException();
      return out.poll();
    }
  }

  /** One side of a key: its former number of rows, the rows stored with the key, and the batch's changes by id. */
  private static final class Met {
    final Map<Object, byte[]> changes = new HashMap<Object, byte[]>();
    Map<Object, Object> few; // null: each is an entry of its own
    long before;
    private long after = -1;

    long after() {
      if (after >= 0) return after;
      after = before;
      for (Iterator<?> each = changes.values().iterator(); each.hasNext(); ) {
        byte op = ((byte[]) each.next())[0];
        if (op == Message.NEW) after++;
        if (op == Message.GONE) after--;
      }
      return after;
    }

    int size() {
      int size = 0;
      for (Iterator<?> each = few.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry row = (Map.Entry) each.next();
        size += ((ByteBuffer) row.getKey()).capacity() + ((byte[]) row.getValue()).length;
      }
      return size;
    }

    scala.collection.Iterator<Object> held() {
      List<Object> held = new ArrayList<Object>(few.size());
      for (Iterator<?> each = few.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry row = (Map.Entry) each.next();
        held.add(new Tuple2<byte[], byte[]>(((ByteBuffer) row.getKey()).array(), (byte[]) row.getValue()));
      }
      return Message.asScala(held.iterator());
    }
  }

  /** The pairs join of the program, and the messages that leave it. */
  private static final class Pairing {
    final int number;
    final long most;
    private final String table, of;
    private final Unmatched[] unmatched = new Unmatched[2];
    private final int target;

    Pairing(JsonNode pairs) {
      number = Message.at(pairs, "number").asInt();
      most = Message.at(pairs, "most").asLong();
      table = Message.at(pairs, "table").asText();
      of = Message.at(pairs, "of").asText();
      target = Message.at(pairs, "target").asInt();
      for (int side = 0; side < 2; side++) {
        unmatched[side] = new Unmatched(Message.at(Message.at(pairs, "sides"), Integer.valueOf(side)));
      }
    }

    IllegalStateException fault(byte[] key, long pairs) {
      String at = new String(key, 1, key.length - 1, StandardCharsets.UTF_8);
      String what = "table " + table + ": " + pairs + " pairs of " + of + " at " + at + ", more than " + most;
      return new IllegalStateException(what + ": add an equality to ON, or a WHERE, so that fewer rows meet");
    }

    /** Emits deleted rows, and new rows without partner. */
    void withoutRows(Met[] met, Collection<Object> out) {
      for (int side = 0; side < 2; side++) {
        for (Iterator<?> each = met[side].changes.entrySet().iterator(); each.hasNext(); ) {
          Map.Entry change = (Map.Entry) each.next();
          byte[] name = ((ByteBuffer) change.getKey()).array(), message = (byte[]) change.getValue();
          boolean gone = message[0] == Message.GONE, alone = unmatched[side].stays && met[1 - side].before == 0;
          if (alone && gone) out.add(unmatched[side].result(name, null));
          if (alone && !gone && met[1 - side].after() == 0)
            out.add(unmatched[side].result(name, Message.payload(message)));
          if (side == 0 && gone) bothGone(name, met[1], out);
        }
      }
    }

    private void bothGone(byte[] left, Met met, Collection<Object> out) {
      for (Iterator<?> each = met.changes.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry change = (Map.Entry) each.next();
        if (((byte[]) change.getValue())[0] != Message.GONE) continue;
        out.add(Message.result(target, named(left, ((ByteBuffer) change.getKey()).array()), null, 0));
      }
    }

    /** Emits the messages of an existing row whose partners changed. */
    void row(int side, byte[] name, byte[] payload, Met[] met, Collection<Object> out) {
      Met partners = met[1 - side];
      byte[] own = (byte[]) met[side].changes.get(ByteBuffer.wrap(name));
      boolean was = own == null || own[0] == Message.PUT;
      for (Iterator<?> each = partners.changes.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry change = (Map.Entry) each.next();
        byte[] other = ((ByteBuffer) change.getKey()).array(), message = (byte[]) change.getValue();
        byte[] pair = side == 0 ? named(name, other) : named(other, name);
        if (message[0] == Message.GONE) {
          if (was) out.add(Message.result(target, pair, null, 0));
        } else if (side == 0 || own == null) { // if both rows changed, the left one emits the pair
          byte[] left = side == 0 ? payload : Message.payload(message);
          byte[] right = side == 0 ? Message.payload(message) : payload;
          out.add(Message.result(target, pair, Message.joined(left, right, Message.NONE), 1));
        }
      }
      if (!unmatched[side].stays) return;
      if (was && partners.before == 0 && partners.after() > 0) out.add(unmatched[side].result(name, null));
      if (partners.before > 0 && partners.after() == 0) out.add(unmatched[side].result(name, payload));
    }

    private static byte[] named(byte[] left, byte[] right) {
      return new Bytes(left.length + 1 + right.length).put(left).put(',').put(right).array();
    }
  }
}
