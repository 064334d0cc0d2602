package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** One place of the tree that reads a table: `joins.route.messages_of`. */
final class Node {
  private final int[] columns, id, hops; // no hops: a leaf
  private final int[][] keys;
  private final int target;

  Node(JsonNode node) {
    columns = Source.ints(Message.at(node, "columns"));
    id = Source.ints(Message.at(node, "id"));
    target = Message.at(node, "target").asInt();
    hops = Source.ints(Message.at(node, "hops"));
    keys = new int[hops.length][];
    for (int i = 0; i < hops.length; i++) {
      keys[i] = Source.ints(Message.at(Message.at(node, "keys"), Integer.valueOf(i)));
    }
  }

  /** What the steps hear of one change of a row. */
  void route(Event event, Collection<Object> out) {
    byte[] before = event.before == null ? null : Source.joined(event.before, columns, 8);
    byte[] after = event.after == null ? null : Source.joined(event.after, columns, 8);
    if (!event.told && before != null && Arrays.equals(before, after)) return;
    byte[] old = before == null ? null : Source.joined(event.before, id, 0);
    byte[] now = after == null ? null : Source.joined(event.after, id, 0);
    if (after != null) ByteBuffer.wrap(after).putLong(event.ts);
    boolean same = old != null && Arrays.equals(old, now);
    if (hops.length == 0 && old != null && !same) out.add(Message.result(target, old, null, event.v));
    if (hops.length == 0 && now != null) out.add(Message.result(target, now, after, event.v));
    for (int hop = 0; hop < hops.length; hop++) {
      byte[] left = old == null ? null : key(hop, event.before, old);
      byte[] right = now == null ? null : key(hop, event.after, now);
      boolean moved = !same || !Arrays.equals(left, right);
      if (left != null && moved) {
        out.add(Message.of(hops[hop], left, same ? Message.MOVED : Message.GONE, event.v, old, Message.NONE));
      }
      if (right == null || hop > 0 && !moved && !event.told) continue;
      byte put = before == null && event.op == 'c' && !event.told ? Message.NEW : Message.PUT;
      byte op = event.mends ? Message.SURE : put;
      out.add(Message.of(hops[hop], right, op, event.v, now, hop == 0 ? after : Message.NONE));
    }
  }

  /** The key at which a row waits; one of its own where a column of it is NULL. */
  private byte[] key(int hop, byte[][] row, byte[] rowId) {
    for (int i = 0; i < keys[hop].length; i++) {
      if (Envelope.isNull(row[keys[hop][i]])) {
        return ByteBuffer.allocate(1 + rowId.length).put((byte) 0).put(rowId).array();
      }
    }
    return Source.joined(row, keys[hop], 0);
  }
}
