package tailorbird.kernel;

import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.streaming.MapState;

/** Compares bags over pages in memory with a map of the same tuples; and orders values as bytes, from texts on stdin. */
public class KernelBags implements InvocationHandler {
  private final Map<Object, byte[]> pages = new HashMap<Object, byte[]>();
  private int touched;

  public Object invoke(Object proxy, Method method, Object[] given) {
    touched++;
    Object at = ByteBuffer.wrap((byte[]) given[0]);
    if (method.getName().equals("getValue")) return pages.get(at);
    if (method.getName().equals("updateValue")) pages.put(at, (byte[]) given[1]);
    else if (method.getName().equals("removeKey")) pages.remove(at);
    else throw new IllegalStateException(method.getName());
    return null;
  }

  private static Group group() {
    String of = "\"reads\":\"bag\",\"of\":0,\"text\":\"\",\"given\":[],", results =
        "[{\"finish\":\"sum of distinct\",\"keeps\":\"sum\"," + of + "\"type\":[\"int64\",0,0]},"
        + "{\"finish\":\"list\",\"keeps\":\"list\"," + of + "\"type\":[\"string\",0,0]}]";
    String bags = "[{\"arguments\":[0],\"types\":[[\"int64\",0,0]],\"needed\":1,\"descending\":[false]}]";
    return new Group(Message.parsed("{\"number\":1,\"target\":2,\"table\":\"t\",\"keys\":[],\"key_types\":[],"
        + "\"arguments\":[0],\"totals\":[],\"bags\":" + bags + ",\"results\":" + results + ",\"always\":null}"));
  }

  /** Rows of numbers up to `most` come and, less and less often, go again until none is left. */
  private static void grow(int seed, int most) {
    KernelBags store = new KernelBags();
    MapState state = (MapState) Proxy.newProxyInstance(
        MapState.class.getClassLoader(), new Class[] {MapState.class}, store);
    Group group = group();
    TreeMap<Long, Long> known = new TreeMap<Long, Long>();
    Random chance = new Random(seed);
    byte[] stored = null;
    for (int batch = 0; batch < 300 || !known.isEmpty(); batch++) {
      Partial partial = new Partial(group, Message.NONE);
      for (int i = chance.nextInt(1 + most / 20); i >= 0; i--) {
        Long number = Long.valueOf(chance.nextInt(most) - most / 2);
        boolean goes = batch >= 300 || chance.nextInt(400) < batch;
        if (goes && !known.isEmpty() && !known.containsKey(number)) {
          number = (Long) (known.floorKey(number) == null ? known.firstKey() : known.floorKey(number));
        }
        if (goes && !known.containsKey(number)) continue;
        byte[] text = Texts.ascii(number.toString());
        partial.add(text, new int[] {0, text.length + 1}, goes ? -1 : 1, new Bytes(8));
        long count = (known.containsKey(number) ? ((Long) known.get(number)).longValue() : 0) + (goes ? -1 : 1);
        if (count == 0) known.remove(number);
        else known.put(number, Long.valueOf(count));
      }
      Bag bag = new Bag(0, group.tally(0), state);
      if (stored != null) bag.read(ByteBuffer.wrap(stored));
      store.touched = 0;
      int changes = partial.sorted(0).size();
      if (!bag.change(partial.sorted(0))) throw new AssertionError("less than not at all");
      if (store.touched > 6 * changes + 6) throw new AssertionError(store.touched + " accesses for " + changes);
      compare(bag, known);
      Bytes out = new Bytes(8);
      bag.write(out);
      stored = out.array();
      for (Iterator<?> page = store.pages.values().iterator(); page.hasNext(); ) {
        if (((byte[]) page.next()).length > Page.MOST) throw new AssertionError("a page too large");
      }
    }
    if (!store.pages.isEmpty()) throw new AssertionError("pages are left");
  }

  private static void compare(Bag bag, TreeMap<Long, Long> known) {
    long sum = 0;
    StringBuilder list = new StringBuilder(), found = new StringBuilder();
    for (Iterator<?> each = known.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      sum += ((Long) entry.getKey()).longValue();
      list.append(entry.getKey()).append('*').append(entry.getValue()).append(' ');
    }
    for (Iterator<?> each = bag.tuples(); each.hasNext(); ) {
      Object[] tuple = (Object[]) each.next();
      found.append(new String(bag.tally.last((byte[]) tuple[0]))).append('*').append(tuple[1]).append(' ');
    }
    boolean same = found.toString().equals(list.toString()) && bag.tally.distinct == known.size();
    if (!same || bag.tally.sum.number().longValue() != sum) throw new AssertionError(found + " for " + list);
    if (known.isEmpty()) same = bag.first() == null && bag.last() == null;
    else {
      same = new String(bag.tally.last(bag.first())).equals(known.firstKey().toString());
      same &= new String(bag.tally.last(bag.last())).equals(known.lastKey().toString());
    }
    if (!same) throw new AssertionError("another end than of " + list);
  }

  /** Lines of a bag's description and tuples, tabs between → the tuples' bytes and what is read of them. */
  private static void values() {
    Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
    while (lines.hasNext()) {
      String[] parts = lines.next().split("\t");
      SortKey order = new SortKey(Message.parsed(parts[0]));
      for (int i = 1; i < parts.length; i++) {
        byte[] text = parts[i].getBytes(java.nio.charset.StandardCharsets.UTF_8);
        int[] at = new int[Message.at(Message.parsed(parts[0]), "arguments").size() + 1];
        Texts.find(text, 0, at);
        Bytes key = new Bytes(4);
        if (!order.write(text, at, key)) throw new AssertionError("not in the bag: " + parts[i]);
        StringBuilder hex = new StringBuilder();
        for (int b = 0; b < key.length; b++) hex.append(String.format("%02x", new Object[] {Byte.valueOf(key.data[b])}));
        String last = new String(order.last(key.array()), java.nio.charset.StandardCharsets.UTF_8);
        System.out.println(hex + "\t" + last);
      }
    }
  }

  public static void main(String[] arguments) {
    if (arguments[0].equals("values")) values();
    else {
      for (String seed : arguments) grow(Integer.parseInt(seed), Integer.parseInt(seed) % 2 == 0 ? 200 : 20000);
      System.out.println("all there");
    }
  }
}
