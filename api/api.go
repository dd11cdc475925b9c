// Package api holds the wire contract of ringlog: the protobuf messages and
// services in ringlog/v1, their generated code, the small set of error codes
// that every surface uses, and the one parser of positions and ages
// (ParsePosition, ParseAge) of HTTP and the command line.
package api

//go:generate -command plugged protoc -I . --plugin=../bin/protoc-gen-go --plugin=../bin/protoc-gen-connect-go
//go:generate plugged --go_out=paths=source_relative:. --connect-go_out=paths=source_relative:. ringlog/v1/ringlog.proto
