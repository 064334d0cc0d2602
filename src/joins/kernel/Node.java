package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import scala.collection.immutable.Seq;

/** A node of the tree that reads a table: `joins.steps.route.messages_of`. */
final class Node {
  private final int[] columns, id, lookups; // no lookups: a leaf
  private final int[][] keys;
  private final byte[][] constants; // the rest of each key, as text; empty where columns are all of it
  private final int target, number; // the latter for traces; -1: events bring their own
  private final boolean addsUp; // exact changes go to the group without a change detector
  private final Filter filter; // null: every row passes

  Node(JsonNode node, Seq[][] conditions) {
    columns = Source.ints(Message.at(node, "columns"));
    id = Source.ints(Message.at(node, "id"));
    target = Message.at(node, "target").asInt();
    number = Message.at(node, "number").asInt();
    addsUp = Message.at(node, "adds_up") != null;
    int condition = Message.at(node, "condition").asInt();
    int[] uses = Source.ints(Message.at(node, "uses"));
    filter = condition < 0 ? null : new Filter(conditions[condition], uses, columns);
    lookups = Source.ints(Message.at(node, "lookups"));
    keys = new int[lookups.length][];
    constants = new byte[lookups.length][];
    for (int i = 0; i < lookups.length; i++) {
      keys[i] = Source.ints(Message.at(Message.at(node, "keys"), Integer.valueOf(i)));
      String rest = Message.at(Message.at(node, "constants"), Integer.valueOf(i)).asText();
      constants[i] = rest.getBytes(StandardCharsets.UTF_8);
    }
  }

  /** Emits the messages of one change of a row. Rows that the filter hides count as absent. */
  void route(Event event, Collection<Object> out) {
    byte[][] from = event.before, to = event.after;
    if (filter != null) {
      if (from != null && !event.blind && !filter.holds(from)) from = null;
      if (to != null && !filter.holds(to)) to = null;
      if (from == null && to == null) return;
    }
    byte[] trace = number < 0 ? event.trace : Message.seen(number, event.place);
    int room = Message.TIME + trace.length;
    byte[] before = from == null ? null : Source.joined(from, columns, 0);
    byte[] after = to == null ? null : Source.joined(to, columns, room);
    boolean both = before != null && after != null;
    if (!event.always && both && Arrays.equals(before, 0, before.length, after, room, after.length)) return;
    if (addsUp && event.exact) {
      images(event, trace, from, after, to, out);
      return;
    }
    byte[] old = before == null ? null : Source.joined(from, id, 0);
    byte[] now = after == null ? null : Source.joined(to, id, 0);
    if (after != null) ByteBuffer.wrap(after).putLong(event.ts).put(trace);
    boolean same = old != null && Arrays.equals(old, now);
    if (lookups.length == 0 && old != null && !same) out.add(Message.result(target, old, null, event.version));
    if (lookups.length == 0 && now != null) out.add(Message.result(target, now, after, event.version));
    for (int i = 0; i < lookups.length; i++) {
      byte[] left = old == null ? null : key(i, from, old);
      byte[] right = now == null ? null : key(i, to, now);
      boolean moved = !same || !Arrays.equals(left, right);
      if (left != null && moved) {
        byte end = event.repairs ? Message.LOST : Message.GONE;
        // a group that the row leaves has the time and the trace of the change
        byte[] head = same && lookups.length == 1 ? Arrays.copyOf(after, room) : Message.NONE;
        out.add(Message.of(lookups[i], left, same ? Message.MOVED : end, event.version, old, head));
      }
      if (right == null || i > 0 && !moved && !event.always) continue;
      // a row that the filter hid was never emitted, unless the log does not contain its before image
      boolean fresh = before == null && !event.always && (event.op == 'c' || event.before != null);
      // a row that comes from another key may be visible from there, even if it is stored here
      byte put = event.repairs || left != null && moved ? Message.SURE : Message.PUT;
      byte op = fresh && put == Message.PUT ? Message.NEW : put;
      out.add(Message.of(lookups[i], right, op, event.version, now, i == 0 ? after : Message.NONE));
    }
  }

  /** Emits both images of an exact change, for `Combine`. `after` has free bytes before its values. */
  private void images(Event event, byte[] trace, byte[][] from, byte[] after, byte[][] to, Collection<Object> out) {
    byte[] shown = to == null ? Message.NONE : trace;
    long ts = to == null ? 0 : event.ts;
    if (from != null) {
      byte[] before = Source.joined(from, columns, Message.TIME + shown.length);
      ByteBuffer.wrap(before).putLong(ts).put(shown);
      byte[] old = Source.joined(from, id, 0);
      out.add(Message.of(target, old, Message.EXACT_BEFORE, event.version, Message.NONE, before));
    }
    if (to == null) return;
    ByteBuffer.wrap(after).putLong(ts).put(shown);
    out.add(Message.of(target, Source.joined(to, id, 0), Message.EXACT_AFTER, event.version, Message.NONE, after));
  }

  /** The key at which a row is stored; a key of its own where a column of it is NULL. */
  private byte[] key(int lookup, byte[][] row, byte[] rowId) {
    for (int i = 0; i < keys[lookup].length; i++) {
      if (Envelope.isNull(row[keys[lookup][i]])) {
        return ByteBuffer.allocate(1 + rowId.length).put((byte) 0).put(rowId).array();
      }
    }
    byte[] key = Source.joined(row, keys[lookup], 0), rest = constants[lookup];
    if (rest.length == 0) return key;
    if (key.length == 0) return rest; // constants alone: every row looks up the same row
    return ByteBuffer.allocate(key.length + 1 + rest.length).put(key).put((byte) ',').put(rest).array();
  }
}
