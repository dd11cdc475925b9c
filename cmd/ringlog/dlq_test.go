package main

import (
	"database/sql"
	"io"
	"net/http"
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

// oldQueue: oldqueue FILE makes a file as the old queue leaves it.
func oldQueue(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	for _, statement := range []string{
		`CREATE TABLE dead_letter_queue (id INTEGER PRIMARY KEY, event_type TEXT NOT NULL, event_data TEXT NOT NULL, error TEXT, created_at REAL, retry_count INTEGER DEFAULT 0)`,
		`INSERT INTO dead_letter_queue VALUES (1, 'training_completed', '{"config_key": "hex8_2p"}', 'connection reset', 1767607200.5, 3)`,
		`INSERT INTO dead_letter_queue VALUES (2, 'model.promoted', '{"elo": 1500}', 'timeout', 1767607201, 1)`,
		`INSERT INTO dead_letter_queue VALUES (5, 'training_completed', '{"weights": "' || hex(zeroblob(3000000)) || '"}', 'larger than a request', 1767607202, 1)`,
		`INSERT INTO dead_letter_queue VALUES (9, 'training_completed', 'not json', NULL, NULL, NULL)`,
	} {
		_, err := db.Exec(statement)
		ts.Check(err)
	}
}
