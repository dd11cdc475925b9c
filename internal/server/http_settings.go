package server

import (
	"encoding/json"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
)

// settingHandlers answers what is asked of the cluster's settings.
type settingHandlers struct {
	settings *service.Settings
	bodies   *bodyReader
}

func (h *settingHandlers) getSettings(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.Setting{"settings": h.settings.List()})
}

func (h *settingHandlers) getSetting(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := h.settings.Get(r.PathValue("key"))
	return answerJSON(w, one, err)
}

// putSetting answers PUT /v1/settings/{key}; an empty value restores the default.
func (h *settingHandlers) putSetting(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Value any `json:"value"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	var value string
	// Settings are text; a number or a boolean is taken as JSON writes it.
	switch v := body.Value.(type) {
	case string:
		value = v
	case float64, bool:
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		value = string(text)
	default:
		return api.Missing("value", `the value as a string; "" restores the default`)
	}
	set, err := h.settings.Set(r.Context(), r.PathValue("key"), value)
	return answerJSON(w, set, err)
}
