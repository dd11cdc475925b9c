package main

import (
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// post: post PATH JSON sends what has no verb, and prints the answer.
func post(ts *testscript.TestScript, neg bool, args []string) {
	base, _, _ := strings.Cut(ts.Getenv("RINGLOG_ENDPOINTS"), ",")
	resp, err := http.Post(base+args[0], "application/json", strings.NewReader(args[1]))
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if ok := resp.StatusCode == http.StatusOK; ok == neg {
		ts.Fatalf("%s: %s %s", args[0], resp.Status, text)
	}
	_, err = ts.Stdout().Write(text)
	ts.Check(err)
}

// oldRows: oldrows FILE writes the rows of the old queue's table as its file would give them: two
// good ones, one larger than a request, one whose payload is no JSON, and two lines that are no rows.
func oldRows(ts *testscript.TestScript, _ bool, args []string) {
	rows := []string{
		`{"id":1,"event_type":"training_completed","event_data":"{\"config_key\": \"hex8_2p\"}",` +
			`"error":"connection reset","created_at":1767607200.5,"retry_count":3}`,
		`{"id":2,"event_type":"model.promoted","event_data":"{\"elo\": 1500}","error":"timeout",` +
			`"created_at":1767607201,"retry_count":1}`,
		`{"id":5,"event_type":"training_completed","event_data":"{\"weights\": \"` + strings.Repeat("0", 6_000_000) +
			`\"}","error":"larger than a request","created_at":1767607202,"retry_count":1}`,
		``,
		`{"id":9,"event_type":"training_completed","event_data":"not json","error":null,"created_at":null,` +
			`"retry_count":null}`,
		`{"id":10,"event_type"`,
		`{"event_type":"training_completed","event_data":"{}"}`,
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(rows, "\n")), 0o600))
}
