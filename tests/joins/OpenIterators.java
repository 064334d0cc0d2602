package tailorbird.kernel;

import java.lang.reflect.*;
import java.util.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/** KeyedJoin over a state of its own that counts what is read of it, and what is left open. */
public class OpenIterators implements InvocationHandler {
  private final TreeMap<Object, byte[]> rows = new TreeMap<Object, byte[]>();
  private byte[] key;
  private int open, read;

  public Object invoke(Object proxy, Method method, final Object[] given) {
    String name = method.getName();
    if (name.equals("getValueState")) return made(ValueState.class);
    if (name.equals("getMapState")) return made(MapState.class);
    if (name.equals("get")) return key;
    if (name.equals("clear")) key = null;
    else if (name.equals("update")) key = (byte[]) given[0];
    else if (name.equals("updateValue")) rows.put(new String((byte[]) given[0]), (byte[]) given[1]);
    else if (name.equals("removeKey")) rows.remove(new String((byte[]) given[0]));
    else if (name.equals("containsKey")) return Boolean.valueOf(rows.containsKey(new String((byte[]) given[0])));
    else if (name.equals("iterator")) return listed();
    else throw new IllegalStateException(name);
    return null;
  }

  private Object made(Class<?> of) {
    return Proxy.newProxyInstance(of.getClassLoader(), new Class[] {of}, this);
  }

  private Object listed() {
    final Iterator<Map.Entry<Object, byte[]>> all = new TreeMap<Object, byte[]>(rows).entrySet().iterator();
    open++;
    return Message.asScala(new Iterator<Object>() {
      private boolean ended;

      public boolean hasNext() {
        if (!all.hasNext() && !ended) {
          ended = true;
          open--;
        }
        return all.hasNext();
      }

      public Object next() {
        read++;
        Map.Entry entry = (Map.Entry) all.next();
        return new Tuple2<byte[], byte[]>(((String) entry.getKey()).getBytes(), (byte[]) entry.getValue());
      }
    });
  }

  static Object change(byte op, int row, int width) {
    byte[] p = new byte[width];
    byte[] r = op <= Message.DIM_GONE ? Message.NONE : ("row " + (100 + row)).getBytes();
    return Message.of(0, "7".getBytes(), op, row, r, op == Message.PUT || op == Message.DIM_PUT ? p : Message.NONE);
  }

  private void batch(KeyedJoin join, List<Object> changes) {
    byte[] k = (byte[]) ((Tuple2) changes.get(0))._1();
    scala.collection.Iterator<Object> out = join.handleInputRows(k, Message.asScala(changes.iterator()), null);
    while (out.hasNext()) out.next();
    if (open != 0) throw new AssertionError(open + " iterators are left open");
  }

  public static void main(String[] arguments) {
    int most = 0;
    for (int seed = 0; seed < 200; seed++) {
      OpenIterators state = new OpenIterators();
      KeyedJoin join = new KeyedJoin(
          "{\"lookups\":[{\"lookup\":0,\"multi_join\":-1,\"part\":0,\"target\":255,\"inner\":"
              + (seed % 2 == 0) + ",\"width\":1}]}");
      join.setHandle((StatefulProcessorHandle) state.made(StatefulProcessorHandle.class));
      join.init(null, null);
      Random chance = new Random(seed);
      Set<Object> live = new HashSet<Object>();
      boolean right = false;
      int changes = 0, told = 0;
      for (int batch = 0; batch < 400; batch++) {
        List<Object> some = new ArrayList<Object>();
        boolean grows = batch / 40 % 2 == 0;
        if (chance.nextInt(40) == 0) {
          right = !right;
          told += live.size() + 3;
          some.add(change(right ? Message.DIM_PUT : Message.DIM_GONE, batch, 20));
        }
        for (int i = chance.nextInt(3); i >= 0; i--) {
          int row = chance.nextInt(60);
          boolean put = chance.nextInt(5) > 0 == grows;
          some.add(change(put ? Message.PUT : chance.nextBoolean() ? Message.GONE : Message.MOVED, row, 40));
          // of one batch the last change of a row is the one with the greatest version, which is the row's number here
          if (put) live.add(Integer.valueOf(row));
          else live.remove(Integer.valueOf(row));
          changes++;
        }
        state.batch(join, some);
        if ((state.key == null) != (live.isEmpty() && !right)) throw new AssertionError("kept or lost: " + live);
        if (state.key == null && !state.rows.isEmpty()) throw new AssertionError("rows without a key");
      }
      most = Math.max(most, state.read - 2 * told - 2 * changes);
    }
    if (most > 0) throw new AssertionError("more is read than was changed or emitted");
    System.out.println("none open");
  }
}
