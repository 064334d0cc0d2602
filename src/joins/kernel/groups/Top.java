package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** Selects the first rows of a group, and builds their names and texts: `joins.steps.top`. */
final class Top {
  private final int most, keys;
  private final int[] names, values; // indexes among the key's values, the tuple's and the number
  private final SortKey order;

  Top(JsonNode top, int keys, SortKey order) {
    this.keys = keys;
    this.order = order;
    most = Message.at(top, "most").asInt();
    names = Source.ints(Message.at(top, "names"));
    values = Source.ints(Message.at(top, "values"));
  }

  /** The text of each first row by name, in order. Only the pages that contain them are read. */
  Map<Object, byte[]> rows(byte[] key, Bag bag) {
    Map<Object, byte[]> rows = new LinkedHashMap<Object, byte[]>();
    byte[][] texts = new byte[keys + order.width() + 1][];
    int[] at = new int[keys + 1];
    if (keys > 0) Texts.find(key, 0, at);
    for (int i = 0; i < keys; i++) texts[i] = Arrays.copyOfRange(key, at[i], at[i + 1] - 1);
    Iterator<Object> tuples = bag.tuples();
    for (int number = 1; number <= most && tuples.hasNext(); number++) {
      order.texts((byte[]) ((Object[]) tuples.next())[0], texts, keys);
      texts[texts.length - 1] = Texts.ascii(Integer.toString(number));
      rows.put(ByteBuffer.wrap(text(texts, names)), text(texts, values));
    }
    return rows;
  }

  static byte[] text(byte[][] texts, int[] places) {
    Bytes out = new Bytes(64);
    for (int i = 0; i < places.length; i++) {
      if (i > 0) out.put(',');
      out.put(texts[places[i]]);
    }
    return out.array();
  }
}
