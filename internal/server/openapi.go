package server

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPI []byte

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	return writeBytes(w, http.StatusOK, contentJSON, openAPI)
}
