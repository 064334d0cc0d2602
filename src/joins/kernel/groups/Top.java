package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** The first rows of a group: which there are, what names each and what it reads as: `joins.steps.top`. */
final class Top {
  private final int most, keys;
  private final int[] names, values; // places among the key's values, the tuple's and the number
  private final SortKey order;

  Top(JsonNode top, int keys, SortKey order) {
    this.keys = keys;
    this.order = order;
    most = Message.at(top, "most").asInt();
    names = Source.ints(Message.at(top, "names"));
    values = Source.ints(Message.at(top, "values"));
  }

  /** Name → what the row reads as, in their order. Only the pages in which they are are read. */
  Map<Object, byte[]> rows(byte[] key, Bag bag) {
    Map<Object, byte[]> rows = new LinkedHashMap<Object, byte[]>();
    byte[][] told = new byte[keys + order.width() + 1][];
    int[] at = new int[keys + 1];
    if (keys > 0) Texts.find(key, 0, at);
    for (int i = 0; i < keys; i++) told[i] = Arrays.copyOfRange(key, at[i], at[i + 1] - 1);
    Iterator<Object> tuples = bag.tuples();
    for (int number = 1; number <= most && tuples.hasNext(); number++) {
      order.texts((byte[]) ((Object[]) tuples.next())[0], told, keys);
      told[told.length - 1] = Texts.ascii(Integer.toString(number));
      rows.put(ByteBuffer.wrap(text(told, names)), text(told, values));
    }
    return rows;
  }

  private static byte[] text(byte[][] told, int[] places) {
    Bytes out = new Bytes(64);
    for (int i = 0; i < places.length; i++) {
      if (i > 0) out.put(',');
      out.put(told[places[i]]);
    }
    return out.array();
  }
}
