package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** How a row of one side of pairs reads where it meets none: `joins.steps.pairs.Side`. */
final class Lone {
  final boolean stays; // else it is not there
  private final boolean right;
  private final int target;
  private final byte[] names, values; // of the other side: NULLs, with the commas towards the row's own

  Lone(JsonNode side) {
    stays = Message.at(side, "stays").asBoolean();
    right = Message.at(side, "side").asInt() == 1;
    target = Message.at(side, "target").asInt();
    names = nulls(Message.at(side, "names").asInt());
    values = nulls(Message.at(side, "values").asInt());
  }

  private byte[] nulls(int count) {
    return String.join("", Collections.nCopies(count, right ? "null," : ",null")).getBytes();
  }

  /** A message that it is there, or (`payload` null) no more. */
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
