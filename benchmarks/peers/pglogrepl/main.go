// Command pglogrepl parses each message of a file: PROGRAM FILE PASSES [typed].
//
// It prints the CPU time of each pass, with that of the garbage collector, as JSON.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
)

// seen shows that the work was done.
type seen struct {
	Changes int `json:"changes"`
	Bytes   int `json:"bytes"`
}

type result struct {
	Nanoseconds []int64 `json:"nanoseconds"`
	Messages    int     `json:"messages"`
	seen
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	check(err)
	passes, err := strconv.Atoi(os.Args[2])
	check(err)
	var types *pgtype.Map
	if len(os.Args) > 3 && os.Args[3] == "typed" {
		types = pgtype.NewMap()
	}
	messages := split(data)
	found := result{Messages: len(messages)}
	pass(messages, types)
	for i := 0; i < passes; i++ {
		start := cpuNanoseconds()
		found.seen = pass(messages, types)
		found.Nanoseconds = append(found.Nanoseconds, cpuNanoseconds()-start)
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

// split returns messages that have their length before them, in 4 bytes, big-endian.
func split(data []byte) (messages [][]byte) {
	for len(data) > 0 {
		end := 4 + int(binary.BigEndian.Uint32(data))
		messages = append(messages, data[4:end])
		data = data[end:]
	}
	return messages
}

func pass(messages [][]byte, types *pgtype.Map) (all seen) {
	relations := map[uint32]*pglogrepl.RelationMessage{}
	for _, data := range messages {
		message, err := pglogrepl.Parse(data)
		check(err)
		var tuple *pglogrepl.TupleData
		var relation uint32
		switch change := message.(type) {
		case *pglogrepl.RelationMessage:
			relations[change.RelationID] = change
			continue
		case *pglogrepl.InsertMessage:
			tuple, relation = change.Tuple, change.RelationID
		case *pglogrepl.UpdateMessage:
			tuple, relation = change.NewTuple, change.RelationID
		case *pglogrepl.DeleteMessage:
			tuple, relation = change.OldTuple, change.RelationID
		default:
			continue
		}
		all.Changes++
		for i, column := range tuple.Columns {
			all.Bytes += len(column.Data)
			if types != nil {
				value(types, relations[relation].Columns[i].DataType, column)
			}
		}
	}
	return all
}

// kept keeps the compiler from omitting the values.
var kept any

// value decodes a column as the example of pglogrepl does, which reads text alone.
func value(types *pgtype.Map, oid uint32, column *pglogrepl.TupleDataColumn) {
	format := int16(pgtype.TextFormatCode)
	switch column.DataType {
	case pglogrepl.TupleDataTypeText:
	case pglogrepl.TupleDataTypeBinary:
		format = pgtype.BinaryFormatCode
	default:
		return
	}
	known, ok := types.TypeForOID(oid)
	if !ok {
		kept = string(column.Data)
		return
	}
	decoded, err := known.Codec.DecodeValue(types, oid, format, column.Data)
	check(err)
	kept = decoded
}

func cpuNanoseconds() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
