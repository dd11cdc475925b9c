package server

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/python"
)

// The package index of Python's PEP 503 with one project, so that a host which reaches nothing but this node installs
// the client with
//
//	pip install --index-url http://NODE:8770/python/ ringlog
//
// The routes need no token: pip has no way to send one as a bearer, and a token that people put into its URL would end
// up in files and histories. The package is no secret. It is the same on every node of a build.
const pythonIndex = "/python/"

// page is a page of the index: links, one a line.
func page(title, links string) []byte {
	return fmt.Appendf(nil, "<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.0\">"+
		"<title>%s</title></head>\n<body>\n%s</body></html>\n", title, links)
}

// getPythonIndex answers GET /python/ with the projects that there are.
func getPythonIndex(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	link := fmt.Sprintf("<a href=\"%s/\">%[1]s</a>\n", python.Project)
	return writeBytes(w, http.StatusOK, contentHTML, page("packages", link))
}

// getPythonProject answers GET /python/{project}/ with the project's files. pip compares what it gets with the digest
// in the link. Links are relative, so they also lead to the file through a proxy with a path of its own.
func getPythonProject(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	if name := r.PathValue("project"); name != python.Project {
		return noPackage("project", fmt.Sprintf("this index has no %.100q", name))
	}
	wheel := python.Built()
	link := fmt.Sprintf("<a href=\"%s#sha256=%s\" data-requires-python=\"%s\">%[1]s</a>\n",
		wheel.File, wheel.SHA256, html.EscapeString(wheel.Requires))
	return writeBytes(w, http.StatusOK, contentHTML, page("ringlog", link))
}

// getPythonFile answers GET /python/{project}/{file} with the wheel, also in parts, and with 304 to those who have it.
func getPythonFile(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	wheel := python.Built()
	if r.PathValue("project") != python.Project || r.PathValue("file") != wheel.File {
		return noPackage("file", fmt.Sprintf("there is nothing at %.200s", r.URL.Path))
	}
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("ETag", `"`+wheel.SHA256+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(wheel.Content))
	return nil
}

// noPackage refuses what the index does not have.
func noPackage(field, message string) error {
	return api.Refuse(api.NotFound, field, message,
		"it has "+python.Project+" "+python.Built().Version+" alone, at "+pythonIndex+python.Project+"/")
}
