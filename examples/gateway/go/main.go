// Appends rows to a log through a gateway, or reads them. The token is in GATEWAY_TOKEN, the file of the authority in GATEWAY_CA.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const usage = "usage: gateway-client URI append LOG NUMBER | gateway-client URI read LOG"

var rides = arrow.NewSchema([]arrow.Field{
	{Name: "ride", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "km", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "city", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "began", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}, // in UTC
	{Name: "fare", Type: &arrow.Decimal128Type{Precision: 10, Scale: 2}, Nullable: true},
	{Name: "stops", Type: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int64)), Nullable: true},
}, nil)

func main() {
	args := os.Args[1:]
	appends := len(args) == 4 && args[1] == "append"
	if !appends && !(len(args) == 3 && args[1] == "read") {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(args, appends); err != nil {
		refused := status.Convert(err)
		fmt.Fprintf(os.Stderr, "%s: %s\n", refused.Code(), refused.Message())
		os.Exit(1)
	}
}

func run(args []string, appends bool) error {
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+os.Getenv("GATEWAY_TOKEN"))
	if !appends {
		return read(ctx, client, args[2])
	}
	number, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return err
	}
	answer, err := appendRides(ctx, client, args[2], number)
	if err != nil {
		return err
	}
	fmt.Println(answer)
	return nil
}

func connect(uri string) (flight.Client, error) {
	address, err := url.Parse(uri)
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if address.Scheme == "grpc+tls" {
		config := &tls.Config{}
		if authority := os.Getenv("GATEWAY_CA"); authority != "" {
			pem, err := os.ReadFile(authority)
			if err != nil {
				return nil, err
			}
			config.RootCAs = x509.NewCertPool()
			config.RootCAs.AppendCertsFromPEM(pem)
		}
		transport = credentials.NewTLS(config)
	}
	// A row above 4 MiB is a larger message than gRPC takes by default.
	large := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20))
	return flight.NewClientWithMiddleware(address.Host, nil, nil, grpc.WithTransportCredentials(transport), large)
}

// One commit of three rows. Who repeats it with the same number appends nothing. Returns the gateway's answer.
func appendRides(ctx context.Context, client flight.Client, log string, number int64) (string, error) {
	rows := ridesOf(number)
	defer rows.Release()
	descriptor, err := command(map[string]any{
		"log": log, "rows": rows.NumRows(), "application": []any{"go-example", number},
	})
	if err != nil {
		return "", err
	}
	stream, err := client.DoPut(ctx)
	if err != nil {
		return "", err
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(rides))
	writer.SetFlightDescriptor(descriptor)
	// When the gateway has refused the rows, io.EOF says only that nobody takes them; Recv says why.
	if err := errors.Join(writer.Write(rows), writer.Close(), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	answer, err := stream.Recv()
	if err != nil {
		return "", err
	}
	return string(answer.AppMetadata), nil
}

// Two rides, and one of which nothing is known but its number.
func ridesOf(number int64) arrow.RecordBatch {
	rows := array.NewRecordBuilder(memory.DefaultAllocator, rides)
	defer rows.Release()
	stops := rows.Field(5).(*array.ListBuilder)
	part := stops.ValueBuilder().(*array.ListBuilder)
	stop := part.ValueBuilder().(*array.Int64Builder)
	noon := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	for i, city := range []string{"Rome", "Tromsø"} {
		id := 10*number + int64(i)
		rows.Field(0).(*array.Int64Builder).Append(id)
		rows.Field(1).(*array.Float64Builder).Append(float64(id) + 0.5)
		rows.Field(2).(*array.StringBuilder).Append(city)
		rows.Field(3).(*array.TimestampBuilder).AppendTime(noon.Add(time.Duration(id) * time.Minute))
		rows.Field(4).(*array.Decimal128Builder).Append(decimal128.FromI64(100*id + 25))
		stops.Append(true)
		part.Append(true)
		stop.Append(id)
		stop.AppendNull()
		part.Append(true)
	}
	rows.Field(0).(*array.Int64Builder).Append(10*number + 2)
	for _, column := range rows.Fields()[1:] {
		column.AppendNull()
	}
	return rows.NewRecordBatch()
}

// Prints each row of the log as a line of JSON. The tickets are parts of one version: other goroutines or machines may take some.
func read(ctx context.Context, client flight.Client, log string) error {
	descriptor, err := command(map[string]any{"log": log, "endpoints": 4})
	if err != nil {
		return err
	}
	info, err := client.GetFlightInfo(ctx, descriptor)
	if err != nil {
		return err
	}
	for _, part := range info.Endpoint {
		if err := printPart(ctx, client, part.Ticket); err != nil {
			return err
		}
	}
	return nil
}

func printPart(ctx context.Context, client flight.Client, ticket *flight.Ticket) error {
	stream, err := client.DoGet(ctx, ticket)
	if err != nil {
		return err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer reader.Release()
	for reader.Next() {
		if err := array.RecordToJSON(reader.RecordBatch(), os.Stdout); err != nil {
			return err
		}
	}
	return reader.Err()
}

func command(fields map[string]any) (*flight.FlightDescriptor, error) {
	text, err := json.Marshal(fields)
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: text}, err
}
