package check

import (
	"encoding/json"
	"path/filepath"
)

// Parts of the SARIF format (OASIS, version 2.1.0) that code hosts read.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     Severity        `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndColumn   int `json:"endColumn,omitempty"`
	}
)

// sarif encodes the report. Rules are the severities: check has no numbered rules.
func (r *Report) sarif() ([]byte, error) {
	run := sarifRun{Tool: sarifTool{sarifDriver{"knarr check", []sarifRule{{string(Error)}, {string(Warning)}}}}, Results: []sarifResult{}}
	for i := range r.Findings {
		f := &r.Findings[i]
		at := sarifPhysical{Artifact: sarifArtifact{filepath.ToSlash(f.File)}}
		if f.Line > 0 {
			at.Region = &sarifRegion{StartLine: f.Line, StartColumn: f.Column}
			if f.width > 0 {
				at.Region.EndColumn = f.Column + f.width
			}
		}
		run.Results = append(run.Results, sarifResult{string(f.Severity), f.Severity, sarifMessage{f.Text()}, []sarifLocation{{at}}})
	}
	data, err := json.MarshalIndent(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}, "", "  ")
	return append(data, '\n'), err
}
