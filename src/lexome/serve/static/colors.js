// The color of a type: the same as in the HTML files that Lexome writes (formats/html.py; a test compares).

// Lightness on a light page, on a dark page, chroma, hue; in OKLCH.
export const COLORS = {
  gene: [0.55, 0.75, 0.16, 257],
  protein: [0.41, 0.66, 0.17, 296],
  disease: [0.41, 0.68, 0.17, 38],
  chemical: [0.49, 0.77, 0.12, 160],
  species: [0.61, 0.9, 0.14, 348],
  variant: [0.6, 0.89, 0.13, 103],
  cellline: [0.38, 0.66, 0.025, 255],
  dna: [0.55, 0.8, 0.09, 210],
  rna: [0.52, 0.78, 0.12, 130],
  celltype: [0.45, 0.72, 0.08, 190],
  anatomy: [0.5, 0.76, 0.1, 65],
  answer: [0.5, 0.8, 0.2, 10],
};

const ALSO = {
  gene: "genes ggp genename geneorgeneproduct geneproduct geneorprotein geneprotein geney genen hgnc familyname",
  protein: "proteins proteinname prot peptide enzyme",
  disease:
    "diseases diseaseorphenotypicfeature diseaseclass specificdisease compositemention modifier disorder phenotype " +
    "symptom cancer problem finding dis",
  chemical: "chemicals chemicalentity simplechemical drug drugs drugn brand compound substance medication chem",
  species: "organism organisms organismtaxon taxon speciesname livb",
  variant:
    "variants mutation mutations sequencevariant snp dnamutation proteinmutation dnaacidchange " +
    "proteinaminoacidchange dnaallele proteinallele copynumbervariant",
  cellline: "celllines",
  dna: "domainmotif",
  rna: "mrna mirna transcript",
  celltype: "cell cells celltypes",
  anatomy: "tissue organ bodypart anatomicalstructure multitissuestructure",
};

const FAMILIES = new Map();
for (const family of Object.keys(COLORS)) {
  for (const name of `${family} ${ALSO[family] ?? ""}`.trim().split(" ")) FAMILIES.set(name, family);
}

/** The color of a type: fixed for the common ones under their many names, from the name's hash for others. */
export function colorOf(type) {
  const family = FAMILIES.get(type.toLowerCase().replace(/[^a-z0-9]/g, ""));
  return family ? COLORS[family] : [0.5, 0.76, 0.12, crc32(new TextEncoder().encode(type)) % 360];
}

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

const sheet = new CSSStyleSheet();
document.adoptedStyleSheets.push(sheet);
const numbers = new Map();

/** The class of a type, such as t3; a new type gets a rule of its own. No name of a type is in the style sheet. */
export function classOf(type) {
  if (!numbers.has(type)) {
    const [light, dark, chroma, hue] = colorOf(type);
    sheet.insertRule(`.t${numbers.size}{--l:${light};--d:${dark};--c:${chroma};--h:${hue}}`);
    numbers.set(type, numbers.size);
  }
  return `t${numbers.get(type)}`;
}
