package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** Emits a row of one side of pairs without a partner: `joins.steps.pairs.Side`. */
final class Unmatched {
  final boolean stays; // outer side; otherwise the row is absent
  private final boolean right;
  private final int target;
  private final byte[] names, values; // NULLs of the other side, with the comma next to the row's own

  Unmatched(JsonNode side) {
    stays = Message.at(side, "stays").asBoolean();
    right = Message.at(side, "side").asInt() == 1;
    target = Message.at(side, "target").asInt();
    names = nulls(Message.at(side, "names").asInt());
    values = nulls(Message.at(side, "values").asInt());
  }

  private byte[] nulls(int count) {
    return String.join("", Collections.nCopies(count, right ? "null," : ",null")).getBytes();
  }

  /** A message with the row or, if `payload` is null, with its deletion. */
  Object result(byte[] name, byte[] payload) {
    Bytes named = new Bytes(name.length + names.length);
    if (right) named.put(names).put(name);
    else named.put(name).put(names);
    if (payload == null) return Message.result(target, named.array(), null, 0);
    int text = Message.textAt(payload, 0);
    ByteBuffer row = ByteBuffer.allocate(payload.length + values.length).put(payload, 0, text);
    if (right) row.put(values);
    row.put(payload, text, payload.length - text);
    if (!right) row.put(values);
    return Message.result(target, named.array(), row.array(), 1);
  }
}
