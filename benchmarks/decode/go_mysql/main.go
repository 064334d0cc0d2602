// The reader of go-mysql: BinlogSyncer from the server, every value as the parser returns it.
// Its arguments and its one line of output are those of reading.py.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

const (
	weights  = 65521
	library  = "github.com/go-mysql-org/go-mysql"
	dateForm = "2006-01-02"
)

var columns = []string{
	"id", "qty", "price", "ratio", "name", "note", "made", "touched", "due", "attrs", "kind", "token",
}

type tally struct {
	count uint64
	sums  [2][]uint64
}

// add counts one change; a nil image is absent.
func (t *tally) add(images [2][]any, table *meaning) error {
	weight := 1 + t.count%weights
	t.count++
	for side, row := range images {
		for index, value := range row {
			text, err := table.text(index, value)
			if err != nil {
				return fmt.Errorf("column %s: %w", columns[index], err)
			}
			t.sums[side][index] += uint64(crc32.ChecksumIEEE(text)) * weight
		}
	}
	return nil
}

// meaning holds the metadata of the table map that the parser leaves to its caller: signs and the labels of ENUM.
type meaning struct {
	unsigned map[int]bool
	labels   map[int][]string
}

func (m *meaning) text(index int, value any) ([]byte, error) {
	if value == nil {
		return []byte{0}, nil
	}
	switch columns[index] {
	case "id":
		number, ok := value.(int32)
		if !ok || !m.unsigned[index] {
			return nil, fmt.Errorf("%T instead of an unsigned int32", value)
		}
		return strconv.AppendUint(nil, uint64(uint32(number)), 10), nil
	case "ratio":
		return double(value.(float64)), nil
	case "made":
		return strconv.AppendInt(nil, value.(time.Time).UnixMicro(), 10), nil
	case "touched":
		return strconv.AppendInt(nil, value.(time.Time).Unix(), 10), nil
	case "due":
		day, err := time.Parse(dateForm, value.(string))
		return strconv.AppendInt(nil, day.Unix()/86400, 10), err
	case "attrs":
		return document(value)
	case "kind":
		return []byte(m.labels[index][value.(int64)-1]), nil
	}
	switch value := value.(type) {
	case []byte:
		return value, nil
	case string:
		return []byte(value), nil
	case int32:
		return strconv.AppendInt(nil, int64(value), 10), nil
	}
	return nil, fmt.Errorf("unexpected %T", value)
}

func double(value float64) []byte {
	return fmt.Appendf(nil, "%016x", math.Float64bits(value))
}

func document(value any) ([]byte, error) {
	var text string
	switch value := value.(type) {
	case []byte:
		text = string(value)
	case string:
		text = value
	default:
		return nil, fmt.Errorf("unexpected %T", value)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var parsed any
	if err := decoder.Decode(&parsed); err != nil {
		return nil, err
	}
	return canonical(nil, parsed)
}

func canonical(to []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case bool:
		return strconv.AppendBool(to, value), nil
	case string:
		return quoted(to, value), nil
	case json.Number:
		if !strings.ContainsAny(string(value), ".eE") {
			return append(append(to, 'i'), value...), nil
		}
		number, err := value.Float64()
		return append(append(to, 'd'), double(number)...), err
	case []any:
		to = append(to, '[')
		var err error
		for _, item := range value {
			if to, err = canonical(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		to = append(to, '{')
		var err error
		for _, key := range keys {
			if to, err = canonical(quoted(to, key), value[key]); err != nil {
				return nil, err
			}
		}
		return append(to, '}'), nil
	}
	return nil, fmt.Errorf("unexpected %T inside JSON", value)
}

func quoted(to []byte, text string) []byte {
	return append(append(strconv.AppendInt(append(to, 's'), int64(len(text)), 10), ':'), text...)
}

type answer struct {
	Version string              `json:"version"`
	Inserts int                 `json:"inserts"`
	Updates int                 `json:"updates"`
	Deletes int                 `json:"deletes"`
	Seconds float64             `json:"seconds"`
	CPU     float64             `json:"cpu"`
	Sums    map[string][]string `json:"sums"`
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == library {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return math.NaN()
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func run() error {
	port := flag.Uint("port", 0, "")
	user := flag.String("user", "", "")
	password := flag.String("password", "", "")
	file := flag.String("file", "", "")
	position := flag.Uint("position", 4, "")
	flag.String("gtids", "", "not needed here")
	table := flag.String("table", "", "")
	changes := flag.Int("changes", 0, "")
	check := flag.Bool("check", false, "")
	flag.Parse()

	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID:  9502,
		Host:      "127.0.0.1",
		Port:      uint16(*port),
		User:      *user,
		Password:  *password,
		Charset:   "utf8mb4",
		ParseTime: true,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	defer syncer.Close()
	streamer, err := syncer.StartSync(mysql.Position{Name: *file, Pos: uint32(*position)})
	if err != nil {
		return err
	}
	result := answer{Version: version()}
	sums := tally{sums: [2][]uint64{make([]uint64, len(columns)), make([]uint64, len(columns))}}
	meanings := map[uint64]*meaning{}
	var began time.Time
	var used float64
	for left := *changes; left > 0; {
		event, err := streamer.GetEvent(context.Background())
		if err != nil {
			return err
		}
		rows, ok := event.Event.(*replication.RowsEvent)
		if !ok || string(rows.Table.Table) != *table {
			continue
		}
		if began.IsZero() {
			began, used = time.Now(), cpuSeconds()
		}
		known := meanings[rows.TableID]
		if *check && known == nil {
			known = &meaning{unsigned: rows.Table.UnsignedMap(), labels: rows.Table.EnumStrValueMap()}
			meanings[rows.TableID] = known
		}
		step := 1
		switch rows.Type() {
		case replication.EnumRowsEventTypeInsert:
			result.Inserts += len(rows.Rows)
		case replication.EnumRowsEventTypeDelete:
			result.Deletes += len(rows.Rows)
		default:
			step = 2
			result.Updates += len(rows.Rows) / 2
		}
		left -= len(rows.Rows) / step
		if !*check {
			continue
		}
		for at := 0; at < len(rows.Rows); at += step {
			images := [2][]any{nil, rows.Rows[at+step-1]}
			if step == 2 || rows.Type() == replication.EnumRowsEventTypeDelete {
				images[0] = rows.Rows[at]
			}
			if rows.Type() == replication.EnumRowsEventTypeDelete {
				images[1] = nil
			}
			if err := sums.add(images, known); err != nil {
				return err
			}
		}
	}
	result.Seconds, result.CPU = time.Since(began).Seconds(), cpuSeconds()-used
	if *check {
		result.Sums = map[string][]string{}
		for index, name := range columns {
			for _, side := range sums.sums {
				result.Sums[name] = append(result.Sums[name], fmt.Sprintf("%016x", side[index]))
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
