"""Which encoding bytes are taken for: the usual one of their language, also in a table of two rows."""

from __future__ import annotations

import random

import pytest

from evoseek.errors import DataError
from evoseek.text.decoding import decode

TABLES = {
    "German": ("Müller;Köln;Größe", "Jäger;Düsseldorf;Süß", "Schröder;Lübeck;Tür", "Weiß;Gießen;Käse"),
    "French": ("Lefèvre;Orléans;clé", "Benoît;Besançon;fenêtre", "Hélène;Nîmes;été", "François;Évry;cœur"),
    "Spanish": ("Muñoz;Málaga;niño", "Peña;León;año", "Núñez;Córdoba;caña", "Íñigo;Cádiz;sí"),
    "Portuguese": ("João;São Paulo;pão", "Conceição;Évora;não", "Simões;Belém;irmã"),
    "Swedish": ("Åke;Malmö;kött", "Jörgen;Västerås;får"),
    "Danish": ("Søren;Århus;kød", "Jørgen;Ærø;blå"),
    "several": ("Müller;Köln;1", "Muñoz;León;2", "Lefèvre;Besançon;3", "Ångström;Malmö;4"),
    "Polish": ("Łukasz;Wrocław;ść", "Grażyna;Gdańsk;żółć", "Jan;Toruń;x", "Wałęsa;Łódź;pięć", "Ola;Kraków;z"),
    "Czech": ("Dvořák;Plzeň;kůň", "Černý;Děčín;žlutý", "Růžička;Třebíč;čaj"),
    "Hungarian": ("Győző;Győr;fűtő", "Szűcs;Pécs;körte"),
    "Croatian": ("Kovačević;Šibenik;đak", "Žižić;Čakovec;šuma"),
    "Turkish": ("Yıldız;İstanbul;ağaç", "Şahin;Kadıköy;ışık", "Güneş;Muğla;çay", "Ali;İstanbul;x", "Veli;Kadıköy;y"),
    "Lithuanian": ("Šarūnas;Klaipėda;žąsis", "Žukauskas;Panevėžys;ąžuolas"),
    "Greek": ("Παπαδόπουλος;Αθήνα;νερό", "Γεωργίου;Πάτρα;ψωμί", "Νικολάου;Λάρισα;σπίτι"),
    "Russian": ("Иванов;Москва;вода", "Петров;Казань;хлеб", "Смирнова;Тула;дом"),
    "Ukrainian": ("Шевченко;Київ;їжа", "Мельник;Львів;сіль"),
    "Hebrew": ("כהן;ירושלים;מים", "לוי;חיפה;לחם", "מזרחי;אשדוד;בית"),
    "Arabic": ("محمد;القاهرة;ماء", "أحمد;الرياض;خبز", "فاطمة;بغداد;بيت"),
}
ENCODINGS = (
    *(("cp1252", name) for name in ("German", "French", "Spanish", "Portuguese", "Swedish", "Danish", "several")),
    *(("cp1250", name) for name in ("German", "Polish", "Czech", "Hungarian", "Croatian")),
    *(("iso8859-2", name) for name in ("Polish", "Czech")),
    *(("mac_roman", name) for name in ("German", "French", "Spanish")),
    *(("cp850", name) for name in ("German", "Spanish")),
    *(("cp852", name) for name in ("Polish",)),
    *(("cp1251", name) for name in ("Russian", "Ukrainian")),
    *((encoding, "Russian") for encoding in ("koi8-r", "cp866")),
    *((encoding, "Greek") for encoding in ("cp1253", "iso8859-7")),
    *(("cp1254", "Turkish"), ("iso8859-9", "Turkish"), ("cp1257", "Lithuanian")),
    *(("cp1255", "Hebrew"), ("cp1256", "Arabic"), ("iso8859-15", "German")),
)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 96])
@pytest.mark.parametrize(("encoding", "language"), ENCODINGS)
def test_a_table_is_read_in_the_usual_encoding_of_its_language(encoding: str, language: str, count: int) -> None:
    for seed in range(4):
        chosen = random.Random(seed)
        rows = [f"{chosen.choice(TABLES[language])};{chosen.randint(1, 99)},50" for _ in range(count)]
        text = "\n".join(["Name;Place;Amount", *rows])
        assert decode(text.replace("\n", "\r\n").encode(encoding))[0] == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Die Größe der Pumpe beträgt 40 m². Sie kostet 1.200 € – „ohne Gewähr“, so der Hersteller."),
        ("cp1252", "L’été, la fenêtre reste ouverte ; cela coûte 12 € l’unité, n° 5 – « sans garantie »."),
        ("cp1252", "¿Dónde está la bomba? ¡En el depósito del señor Muñoz! Cuesta 12 €."),
        ("cp1252", "The pump’s “nominal” size – 40 m³ at 20 °C – costs £12 ± 5 %. © Kalo™"),
        ("cp1252", "part,size\nA,40 µm\nB,30 m²\n"),
        ("cp1252", "Calle Mayor nº 5, 1ª planta. D.ª Ana Peña, 3º"),
        ("cp1252", "Ø 40 mm"),
        ("cp1252", "de 40 à 50"),
        ("cp1252", "cost ¥40, 10¹ times"),
        ("iso8859-15", "Die Größe kostet 1200 € im Monat."),
        ("cp1250", "Pompa Pawła kosztuje dwieście złotych, a gwarancja trwa trzydzieści miesięcy."),
        ("cp1254", "Pompanın garantisi otuz ay sürer; fiyatı iki yüz liradır."),
        ("mac_roman", "Die Größe der Pumpe beträgt vierzig Meter. Sie gehört Frau Müller."),
        ("koi8-r", "Гарантия на насос действует тридцать месяцев, сказал Пётр Иванов."),
        ("cp1251", "НАСОС стоит двести рублей. Гарантия – тридцать месяцев, №5."),
    ],
)
def test_prose_is_read_in_the_usual_encoding_of_its_language(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding))[0] == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["The mayor is Meri.", "Größe, Łódź\n", "Москва - город.\nИ река.", "一是好的。\n一二三。\n" * 9]
)
def test_utf_16_needs_no_mark(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)) == (text, encoding)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 64,
        b"text\0",
        b"\x7fELF\2\1\1" + b"\0" * 9,
        bytes(range(256)) * 4,
        b"PK\3\4\x14\0\0\0\x08\0" * 8,
        b"a\0b\0c",
    ],
)
def test_binary_data_is_none(data: bytes) -> None:
    with pytest.raises(DataError, match="binary: holds NUL bytes"):
        decode(data)
