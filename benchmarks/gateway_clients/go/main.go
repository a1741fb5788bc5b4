// URI append|read|check LOG ROWS COMMITS: prints the seconds from the first call to the last answer. The rows are those of rows.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const batchRows = 65_536

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "day", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "amount", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

var names = func() (made [1000]string) {
	for i := range made {
		made[i] = fmt.Sprintf("customer %07d", 997*i)
	}
	return
}()

type values struct {
	day    int32
	amount int64
	price  float64
	name   string
}

func rowOf(row int64) values {
	mixed := uint64(row) * 0x9E3779B97F4A7C15
	return values{int32(row / 1000 % 365), int64((mixed >> 40) % 100_000), float64(mixed>>11) * 0x1p-53, names[(mixed>>32)%1000]}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	rows, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return err
	}
	commits, err := strconv.ParseInt(args[4], 10, 64)
	if err != nil {
		return err
	}
	address, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	large := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20))
	client, err := flight.NewClientWithMiddleware(address.Host, nil, nil, plain, large)
	if err != nil {
		return err
	}
	defer client.Close()
	var seconds float64
	if args[1] == "append" {
		seconds, err = appendAll(client, args[2], rows, commits)
	} else {
		seconds, err = readAll(client, args[2], rows, args[1] == "check")
	}
	if err == nil {
		fmt.Println(seconds)
	}
	return err
}

func appendAll(client flight.Client, log string, rows, commits int64) (float64, error) {
	parts := make([][]arrow.RecordBatch, commits)
	for commit := range parts {
		parts[commit] = made(int64(commit)*(rows/commits), rows/commits)
	}
	began := time.Now()
	for _, part := range parts {
		if err := put(client, log, part); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds(), nil
}

func made(first, count int64) (batches []arrow.RecordBatch) {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	for done := int64(0); done < count; done += batchRows {
		for row := first + done; row < first+min(done+batchRows, count); row++ {
			value := rowOf(row)
			builder.Field(0).(*array.Int64Builder).Append(row)
			builder.Field(1).(*array.Int32Builder).Append(value.day)
			builder.Field(2).(*array.Int64Builder).Append(value.amount)
			builder.Field(3).(*array.Float64Builder).Append(value.price)
			builder.Field(4).(*array.StringBuilder).Append(value.name)
		}
		batches = append(batches, builder.NewRecordBatch())
	}
	return batches
}

func put(client flight.Client, log string, part []arrow.RecordBatch) error {
	rows := int64(0)
	for _, batch := range part {
		rows += batch.NumRows()
	}
	descriptor, err := command(map[string]any{"log": log, "create": true, "rows": rows})
	if err != nil {
		return err
	}
	stream, err := client.DoPut(context.Background())
	if err != nil {
		return err
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	writer.SetFlightDescriptor(descriptor)
	for _, batch := range part {
		if err = writer.Write(batch); err != nil {
			break
		}
	}
	// When the gateway has refused the rows, io.EOF says only that nobody takes them; Recv says why.
	if err := errors.Join(err, writer.Close(), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = stream.Recv()
	return err
}

func readAll(client flight.Client, log string, rows int64, checks bool) (float64, error) {
	began, found := time.Now(), int64(0)
	descriptor, err := command(map[string]any{"log": log})
	if err != nil {
		return 0, err
	}
	info, err := client.GetFlightInfo(context.Background(), descriptor)
	if err != nil {
		return 0, err
	}
	for _, part := range info.Endpoint {
		if found, err = readPart(client, part.Ticket, found, checks); err != nil {
			return 0, err
		}
	}
	if found != rows {
		return 0, fmt.Errorf("%d rows came of %d", found, rows)
	}
	return time.Since(began).Seconds(), nil
}

// Gives back how many rows came up to the end of this part.
func readPart(client flight.Client, ticket *flight.Ticket, found int64, checks bool) (int64, error) {
	stream, err := client.DoGet(context.Background(), ticket)
	if err != nil {
		return 0, err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	for reader.Next() {
		if checks {
			if err := check(reader.RecordBatch(), found); err != nil {
				return 0, err
			}
		}
		found += reader.RecordBatch().NumRows()
	}
	return found, reader.Err()
}

func check(batch arrow.RecordBatch, first int64) error {
	id, day := batch.Column(0).(*array.Int64), batch.Column(1).(*array.Int32)
	amount, price := batch.Column(2).(*array.Int64), batch.Column(3).(*array.Float64)
	name := batch.Column(4).(*array.String)
	for i := range int(batch.NumRows()) {
		row := first + int64(i)
		found := values{day.Value(i), amount.Value(i), price.Value(i), name.Value(i)}
		if id.Value(i) != row || found != rowOf(row) {
			return fmt.Errorf("row %d is another one", row)
		}
	}
	return nil
}

func command(fields map[string]any) (*flight.FlightDescriptor, error) {
	text, err := json.Marshal(fields)
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: text}, err
}
