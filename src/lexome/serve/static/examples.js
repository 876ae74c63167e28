// Abstracts to try the page with. They are made up: no such study was done.

export const EXAMPLES = [
  {
    name: "A drug trial",
    text: `Olaparib maintenance in BRCA1-mutated ovarian cancer: a randomised trial

Background: Women with platinum-sensitive ovarian cancer often relapse within a year. We asked whether maintenance with the PARP inhibitor olaparib delays relapse in carriers of germline BRCA1 or BRCA2 mutations.

Methods: In 14 hospitals, 212 patients in response to carboplatin and paclitaxel were randomised to olaparib 300 mg twice daily or placebo. The founder mutation c.5266dupC was found in 38 patients.

Results: Median progression-free survival was 19.4 months with olaparib and 6.1 months with placebo. Anaemia and neutropenia were more common with olaparib. Loss of TP53BP1 in tumour biopsies was seen in five patients who relapsed early, and three of these carried a BRCA1 reversion.

Conclusion: Olaparib prolonged the time to relapse of ovarian cancer at the price of anaemia, which was managed with dose reduction.`,
  },
  {
    name: "A rare disease",
    text: `A homozygous variant in GBA1 in two siblings with Gaucher disease and parkinsonism

Gaucher disease is caused by deficiency of glucocerebrosidase, encoded by GBA1. We report two siblings with hepatosplenomegaly, thrombocytopenia and tremor that began at the age of 34 years. Sequencing showed the variant p.Asn409Ser (N370S, rs76763715) on both alleles; their healthy mother was heterozygous. Enzyme activity in leukocytes was 8% of controls, and glucosylsphingosine in plasma was raised 40-fold. α-Synuclein was increased in fibroblasts of both patients. Treatment with imiglucerase normalised the platelet count within nine months, while the parkinsonism responded to levodopa but not to imiglucerase. Variants in LRRK2 and PRKN were excluded. Parkinson disease should be looked for in adults with Gaucher disease, even where the visceral disease is mild.`,
  },
  {
    name: "A mouse model",
    text: `Metformin limits neuroinflammation after Streptococcus pneumoniae meningitis in mice

Bacterial meningitis leaves survivors with hearing loss and cognitive deficits despite ceftriaxone. Metformin activates AMPK and dampens microglial NF-κB signalling. C57BL/6 mice were infected with Streptococcus pneumoniae serotype 3, treated with ceftriaxone from 18 h, and given metformin or saline. Metformin lowered Il1b, Tnf and Cxcl2 transcripts in the hippocampus and reduced hearing loss at day 14, but did not change bacterial counts. In BV-2 cells stimulated with pneumolysin, metformin reduced IL-6 and TNF-α release; the AMPK inhibitor dorsomorphin (compound C) abolished the effect. Mice that lacked Prkaa1 in microglia were not protected. Metformin is a candidate for adjunctive treatment of pneumococcal meningitis; lactic acidosis was not seen.`,
  },
];
