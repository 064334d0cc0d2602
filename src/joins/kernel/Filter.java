package tailorbird.kernel;

import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.util.*;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.*;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/**
 * The condition that a node's rows must satisfy, evaluated by Spark's own code over their texts, so it has the same
 * meaning as in WHERE. It is resolved once when the query is created, and prepared by each task that processes a row.
 */
final class Filter {
  private static final ObjectMapper JSON = new ObjectMapper();
  private final Seq[] resolved;
  private final int[] uses, columns; // indexes in the condition's array, and in the source's rows
  private final Object[] values;
  private final InternalRow row;
  private UnsafeProjection[] below;
  private BasePredicate holds;

  Filter(Seq[] resolved, int[] uses, int[] columns) {
    this.resolved = resolved;
    this.uses = uses;
    this.columns = columns;
    values = new Object[columns.length];
    row = new GenericInternalRow(new Object[] {new GenericArrayData((Object[]) values)});
  }

  /** A program's conditions over an array `image`: for each, the expressions and inputs of the projections. */
  static Seq[][] resolved(SparkSession session, String program) {
    JsonNode conditions = Message.at(Message.parsed(program), "conditions");
    Seq[][] found = new Seq[conditions.size()][];
    if (found.length == 0) return found;
    StructType schema = new StructType().add("image", DataTypes.createArrayType(DataTypes.StringType));
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());
    for (int i = 0; i < found.length; i++) {
      String condition = Message.at(conditions, Integer.valueOf(i)).asText();
      Dataset asked = session.createDataFrame(context.emptyRDD(), schema).selectExpr(new String[] {condition});
      LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) asked).queryExecution().optimizedPlan();
      ArrayDeque<Object> stages = new ArrayDeque<Object>(); // common subexpressions get their own stage
      while (!plan.children().isEmpty()) {
        LogicalPlan child = (LogicalPlan) plan.children().head();
        stages.addFirst(child.output().toList());
        stages.addFirst(plan.expressions().toList());
        plan = child;
      }
      found[i] = (Seq[]) stages.toArray(new Seq[0]);
    }
    return found;
  }

  /** Whether a row of the source satisfies the condition; NULL does not. */
  boolean holds(byte[][] image) {
    if (holds == null) prepare();
    for (int i = 0; i < uses.length; i++) values[uses[i]] = text(image[columns[uses[i]]]);
    InternalRow at = row;
    for (int i = 0; i < below.length; i++) at = below[i].apply(at);
    return holds.eval(at);
  }

  private void prepare() {
    below = new UnsafeProjection[resolved.length / 2 - 1];
    for (int i = 0; i < below.length; i++) {
      below[i] = UnsafeProjection$.MODULE$.create(resolved[2 * i], resolved[2 * i + 1]);
      below[i].initialize(0);
    }
    int last = 2 * below.length;
    Expression condition = (Expression) ((Expression) resolved[last].head()).children().head(); // below its alias
    holds = Predicate$.MODULE$.create(condition, resolved[last + 1]);
    holds.initialize(0);
  }

  /** The value as `from_json` returns it: a text without its quotes, anything else as written. */
  private static UTF8String text(byte[] value) {
    if (Envelope.isNull(value)) return null;
    if (value[0] != '"') return UTF8String.fromBytes(value);
    for (int i = 1; i < value.length; i++) if (value[i] == '\\') return UTF8String.fromString(unescaped(value));
    return UTF8String.fromBytes(value, 1, value.length - 2);
  }

  private static String unescaped(byte[] value) {
    try {
      return (String) JSON.readValue(value, String.class);
    } catch (IOException e) {
      throw new IllegalStateException(e); // cannot happen: the kernel wrote it
    }
  }
}
